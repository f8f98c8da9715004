"""Tests of what was wrong in the classes that TensorFlow once had."""

import itertools
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops

SUM = test_util.SUM
REPLICAS, PAIRED = class_util.REPLICAS, class_util.PAIRED
UNEVEN, ALONE, PAIRS = class_util.UNEVEN, class_util.ALONE, class_util.PAIRS
PACKINGS = class_util.PACKINGS
make, each, vectors = class_util.make, class_util.each, class_util.vectors
of_unknown_shape = class_util.of_unknown_shape
batch_reduce, arrays = class_util.batch_reduce, class_util.arrays
sums, traced, kind = class_util.sums, class_util.traced, class_util.kind


class HistoricBugsTest(parameterized.TestCase):
  """What was wrong in TensorFlow's classes, one test each."""

  @parameterized.parameters("xring:16:ps", "ps:24:rechd#2", "ps:8:xring:24:ps")
  def test_order_is_kept_whatever_the_sizes(self, spec):
    values = vectors([8, 2, 6])
    for packing in PACKINGS:
      ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, **packing)
      self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))

  @parameterized.parameters(
      ("float32", 4, False), ("float32", 5, True), ("float64", 2, False),
      ("float64", 3, True), ("complex64", 2, False), ("float16", 8, False))
  def test_limits_are_bytes(self, dtype, length, is_larger):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps:16:collective")
    emitted = traced(lambda: batch_reduce(
        ops, SUM, vectors([length], dtype=dtype)))
    self.assertEqual(bool(kind(emitted, "CollectiveReduceV2")), is_larger)

  @parameterized.parameters(*range(1, 10))
  def test_default_spec_on_one_worker(self, replicas):
    values = vectors([5, 1], replicas)
    self.assertEqual(
        arrays(batch_reduce(tf_cdops.MultiWorkerAllReduce(), SUM, values)),
        sums(values))

  def test_pair_in_several_shards(self):
    values = vectors([1, 2, 7, 30])
    for topology in (None, PAIRED, UNEVEN):
      ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps/xring#3",
                                          topology=topology)
      self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))

  @parameterized.product(spec=("rechd", "hierarchical_copy"),
                         replicas=tuple(range(1, 10)))
  def test_any_number_of_devices_and_any_length(self, spec, replicas):
    values = vectors([1, 2, 3, 7, 10], replicas)
    self.assertEqual(arrays(batch_reduce(make(spec), SUM, values)),
                     sums(values))

  @parameterized.parameters(*ALONE)
  def test_one_input(self, spec):
    values = vectors([3, 5], 1)
    self.assertEqual(arrays(batch_reduce(make(spec), SUM, values)),
                     sums(values))

  @parameterized.product(spec=ALONE + PAIRS, shape=(None, [None], [None, 2]))
  def test_unknown_shapes(self, spec, shape):
    actual = [[n] if shape == [None] else [n, 2] for n in (5, 0)]
    def emit() -> list[Any]:
      results = []
      for dims in actual:
        unknown = each(lambda r, dims=dims: of_unknown_shape(
            tf.fill(dims, 1.0 * r), shape))
        self.assertIsNone(unknown.values[0].shape.num_elements())
        results += batch_reduce(make(spec), SUM, [unknown])
      return results
    self.assertEqual(
        [result.arrays for result in test_util.run("function", emit)],
        [[np.full(dims, 10.0).tolist()] * REPLICAS for dims in actual])

  @parameterized.product(spec=ALONE, unknown=((0,), (1, 3)), num_packs=(0, 1))
  def test_shapes_that_some_replicas_do_not_know(self, spec, unknown,
                                                 num_packs):
    def emit() -> list[Any]:
      values = [each(lambda r, n=n: of_unknown_shape(
          tf.fill([n], 1.0 * r), [None] if r - 1 in unknown else [n]))
                for n in (2, 9)]
      return batch_reduce(make(spec, num_packs=num_packs), SUM, values)
    self.assertEqual(
        [result.arrays for result in test_util.run("function", emit)],
        [[[10.0] * n] * REPLICAS for n in (2, 9)])

  @parameterized.parameters(*PACKINGS)
  def test_mixed_dtypes_pack(self, **packing):
    values = [value for pair in zip(*[
        vectors([3, 1, 4], dtype=dtype)
        for dtype in ("float32", "float64", "complex64", "int64")], strict=True)
              for value in pair]
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="xring", **packing)
    results = batch_reduce(ops, SUM, values)
    self.assertEqual(arrays(results), sums(values))
    self.assertEqual([r.values[0].dtype for r in results],
                     [v.values[0].dtype for v in values])

  @parameterized.parameters(*ALONE)
  def test_fewer_elements_than_packs(self, spec):
    values = vectors([1, 2])
    ops = make(spec, num_packs=5)
    self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", num_packs=5)
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors([1, 2])))
    self.assertLen(kind(emitted, "AddN"), 2)

  # A group's size and one more, once and twice; other sizes are the planner's.
  @parameterized.parameters(
      (10, 9, 2), (10, 10, 1), (11, 10, 2), (20, 10, 2), (21, 10, 3),
      (10, 0, 10))
  def test_group_limit_is_exact(self, count, group, packs):
    ops = tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="ps", agg_small_grads_max_bytes=8,
        agg_small_grads_max_group=group)
    # Those of 12 bytes, among the small ones, travel alone.
    lengths = [*[2] * (count // 2), 3, *[2] * (count - count // 2), 3]
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors(lengths, 2)))
    self.assertLen(kind(emitted, "AddN"), packs + 2)

  @parameterized.parameters("pscpu/pscpu#2", "xring", "auto")
  def test_slices_have_a_path(self, spec):
    value = test_util.per_replica_slices(
        ([[1.0, 2.0]], [1], [3, 2]), ([[3.0, 4.0]], [1], [3, 2]))
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec)
    (result,) = batch_reduce(ops, SUM, [value])
    for part in result.values:
      self.assertIsInstance(part, tf.IndexedSlices)
      self.assertEqual(tf.convert_to_tensor(part).numpy().tolist(),
                       [[0, 0], [4, 6], [0, 0]])

  @parameterized.parameters(*ALONE, *(
      f"{a}/{b}" for a, b in itertools.product(ALONE, ALONE)))
  def test_one_and_two_and_three_are_six(self, spec):
    value = each(float, 3)
    names = virtual_devices.names(3)
    for topology in (None, tf_cdops.Topology.from_devices(
        names, [names[:2], names[2:]])):
      ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec,
                                          topology=topology)
      self.assertEqual(arrays([ops.reduce(SUM, value, value)]), [[6.0] * 3])


if __name__ == "__main__":
  absltest.main()
