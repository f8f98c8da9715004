"""Tests of `self_check`."""

import itertools
import math
from collections.abc import Callable
from typing import Any
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import registrations
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.execution import executor

SUM, MEAN = test_util.SUM, test_util.MEAN
REPLICAS, SPECS = class_util.REPLICAS, class_util.SPECS
make, each, vectors = class_util.make, class_util.each, class_util.vectors
mixed_batch, batch_reduce = class_util.mixed_batch, class_util.batch_reduce
arrays, traced, kind = class_util.arrays, class_util.traced, class_util.kind
tensorflows_results = class_util.tensorflows_results


class SelfCheckTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    # What this test registers must not stay for other tests.
    self.enter_context(registrations.undone())

    @tf_cdops.register_all_reduce(
        "drops_one", description="Forgets the last replica.")
    def drops_one(fabric: Any, values: Any, group: Any) -> Any:
      return [fabric.add(values[:-1], place) for place in group.places]

    @tf_cdops.register_all_reduce(
        "differs", description="Is right everywhere but on the last device.")
    def differs(fabric: Any, values: Any, group: Any) -> Any:
      right = [fabric.add(values, place) for place in group.places]
      return [*right[:-1], fabric.add([right[-1], values[0]],
                                      group.places[-1])]

  @parameterized.parameters(*SPECS)
  def test_right_algorithms_pass(self, spec):
    for reduce_op in (SUM, MEAN):
      ops = make(spec, self_check=True)
      self.assertEqual(
          test_util.run("eager", lambda ops=ops, op=reduce_op: batch_reduce(
              ops, op, mixed_batch())),
          tensorflows_results("eager", reduce_op))

  @parameterized.product(mode=("function", "graph"), spec=("xring", "auto"))
  def test_right_algorithms_pass_in_graphs(self, mode, spec):
    ops = make(spec, self_check=True)
    self.assertEqual(
        test_util.run(mode, lambda: batch_reduce(ops, MEAN, mixed_batch())),
        tensorflows_results(mode, MEAN))

  def assert_caught(self, spec: str, values: Callable[[], list[Any]],
                    message: str, mode: str = "eager",
                    reduce_op: Any = SUM, **kwargs: Any) -> None:
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, self_check=True,
                                        **kwargs)
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
      test_util.run(mode, lambda: batch_reduce(ops, reduce_op, values()))

  @parameterized.product(mode=test_util.MODES, num_packs=(0, 1))
  def test_catches_a_dropped_replica(self, mode, num_packs):
    # Only tensors 0 and 2 are large enough for the broken algorithm.
    self.assert_caught(
        "ps:8:drops_one", lambda: vectors([8, 2, 6]),
        # TensorFlow puts a backslash before a graph's apostrophes.
        r"tensor [02] on \S*CPU:\d, reduced by \\?'drops_one\\?', isn\\?'t the "
        "sum", mode, num_packs=num_packs)

  @parameterized.parameters(*test_util.MODES)
  def test_catches_one_wrong_device(self, mode):
    self.assert_caught(
        "differs", lambda: vectors([3]),
        r"tensor 0 on \S*CPU:3, reduced by \\?'differs\\?', isn\\?'t the sum",
        mode)

  def test_without_it_nothing_is_noticed(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="drops_one")
    self.assertEqual(arrays(batch_reduce(ops, SUM, vectors([1]))),
                     [[[100.0 + 200 + 300]] * 4])

  @parameterized.product(
      dtype=("float16", "bfloat16", "float32", "float64", "int8", "uint8",
             "int32", "int64", "complex64", "complex128"),
      reduce_op=(SUM, MEAN), replicas=(3, 8))
  def test_every_dtype(self, dtype, reduce_op, replicas):
    # Every replica has its share in the sum: dropping one is no rounding.
    values = lambda: [each(lambda r: tf.cast([1, 2, 3], dtype), replicas)]
    for spec in ("ps", "xring", "hierarchical_copy"):
      test_util.run("eager", lambda spec=spec: batch_reduce(
          tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, self_check=True),
          reduce_op, values()))
    self.assert_caught("drops_one", values, "isn't the sum",
                       reduce_op=reduce_op)

  @parameterized.parameters("float16", "bfloat16", "float32")
  def test_rounding_does_not_trip_it(self, dtype):
    rng = np.random.default_rng(1)
    values = [each(lambda r: tf.cast(rng.normal(size=500) * 10.0**(r % 4),
                                     dtype), 8)]
    for spec in ("xring", "rechd#3", "collective"):
      ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec,
                                          self_check=True)
      for reduce_op in (SUM, MEAN):
        (result,) = batch_reduce(ops, reduce_op, values)
        self.assertEqual(result.values[0].shape, [500])

  @parameterized.product(
      reduce_op=(SUM, MEAN), dtype=("float32", "bfloat16", "complex64"),
      spec=("xring", "rechd"))
  def test_inf_and_nan_do_not_trip_it(self, reduce_op, dtype, spec):
    inf, nan, big = math.inf, math.nan, 3e38
    rows = ([inf, nan, 1, inf, big, -big], [1, 2, 3, -inf, big, big],
            [nan, 0, 5, 1, -big, big])
    values = [virtual_devices.per_replica([tf.cast(r, dtype) for r in rows])]
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, self_check=True)
    (result,) = batch_reduce(ops, reduce_op, values)
    self.assertEqual(complex(result.values[0][2].numpy()),
                     9 if reduce_op == SUM else 3)

  @parameterized.product(mode=("eager", "function"), reduce_op=(SUM, MEAN),
                         dtype=("float16", "float32", "complex64"))
  def test_catches_a_number_where_there_is_none(self, mode, reduce_op, dtype):
    for odd in (math.inf, -math.inf, math.nan):
      # Only the replica that is forgotten has it.
      self.assert_caught(
          "drops_one", lambda odd=odd: [each(lambda r: tf.cast(
              [odd if r == REPLICAS else 1.0], dtype))],
          "tensor 0 on", mode, reduce_op)

  # What is compared depends on how slices travel, and how closely on the dtype
  # and the op; what raises depends on the mode alone.
  @parameterized.parameters(
      *itertools.product(
          ("eager",), ("gather", "deduplicate", "dense"),
          ("float16", "float32", "int32", "complex64"), (SUM, MEAN)),
      *itertools.product(("function", "graph"),
                         ("gather", "deduplicate", "dense"), ("float32",),
                         (MEAN,)))
  def test_sparse_results(self, mode, sparse, dtype, reduce_op):
    def values() -> list[Any]:
      return [*vectors([2]), test_util.per_replica_slices(
          ([[1, 2], [3, 4], [5, 6]], [2, 0, 2], [4, 2]),
          ([[7, 8]], [3], [4, 2]), dtype=dtype)]
    ops = make("xring", self_check=True, sparse=sparse)
    test_util.run(mode, lambda: batch_reduce(ops, reduce_op, values()))
    if sparse == "dense":
      return
    right = executor.gather_slices
    broken = lambda values, names, op: right(values[:1], names, op)
    with mock.patch.object(executor, "gather_slices", broken), (
        self.assertRaisesRegex(
            tf.errors.InvalidArgumentError,
            r"tensor 1 on \S*CPU:\d, gathered, isn\\?'t the sum")):
      test_util.run(mode, lambda: batch_reduce(ops, reduce_op, values()))

  def test_sparse_integers_to_the_last_digit(self):
    large = 2**60  # Where float64 has no odd numbers.
    values = [test_util.per_replica_slices(
        ([[large]], [0], [1, 1]), ([[1]], [0], [1, 1]), dtype=tf.int64)]
    ops = make("xring", self_check=True)
    batch_reduce(ops, SUM, values)
    right = executor.gather_slices
    broken = lambda values, names, op: right(values[:1], names, op)
    with mock.patch.object(executor, "gather_slices", broken), (
        self.assertRaisesRegex(tf.errors.InvalidArgumentError, "gathered")):
      batch_reduce(ops, SUM, values)

  @parameterized.parameters(*test_util.MODES)
  def test_results_of_one_device(self, mode):
    ops = make("xring", self_check=True)
    to_one = lambda: ops.batch_reduce(SUM, [
        (value, virtual_devices.names(2)[1]) for value in vectors([3, 2])])
    test_util.run(mode, to_one)
    wrong = lambda device, values, _: executor.as_tensor(values[0], device)
    with mock.patch.object(executor, "sum_on", wrong), (
        self.assertRaisesRegex(
            tf.errors.InvalidArgumentError,
            r"tensor [01] on \S*CPU:1, summed on one device, isn\\?'t the")):
      test_util.run(mode, to_one)

  def test_sums_once_for_all_devices(self):
    emitted = {
        check: len(kind(traced(lambda check=check: batch_reduce(
            make("ps", self_check=check), SUM, vectors([3]))), "AddN"))
        for check in (False, True)}
    # The plain sum, that of sizes, and the number of odd terms.
    self.assertEqual(emitted[True] - emitted[False], 3)

  def test_inf_does_not_hide_a_fault_beside_it(self):
    self.assert_caught("drops_one",
                       lambda: [each(lambda r: [math.inf, 1.0 * r])],
                       "tensor 0 on")

  @parameterized.parameters(SUM, MEAN)
  def test_integers_that_overflow_do_not_trip_it(self, reduce_op):
    values = [each(lambda r: tf.constant([100, -100], tf.int8))]
    results = [batch_reduce(tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="xring", **kwargs), reduce_op, values)
               for kwargs in ({}, {"self_check": True})]
    self.assertEqual(arrays(results[0]), arrays(results[1]))


if __name__ == "__main__":
  absltest.main()
