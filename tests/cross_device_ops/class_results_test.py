"""Compares whole batches of every kind of value with TensorFlow's own sums."""

from typing import Any
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import cross_device_ops_contract as contract
from tests import python_process
from tests import test_util
from tests import virtual_devices

import tensorflow as tf

import tf_cdops
from tf_cdops.base import tf_compat
from tf_cdops.planning import planner

SUM, MEAN = test_util.SUM, test_util.MEAN
REPLICAS, ALONE, SPECS = class_util.REPLICAS, class_util.ALONE, class_util.SPECS
PACKINGS, CLASSES = class_util.PACKINGS, class_util.CLASSES
make, each, vectors = class_util.make, class_util.each, class_util.vectors
mixed_batch, batch_reduce = class_util.mixed_batch, class_util.batch_reduce
arrays, sums = class_util.arrays, class_util.sums
strategy_of, no_logs = class_util.strategy_of, class_util.no_logs
tensorflows_results = class_util.tensorflows_results


def rotated(by: int) -> list[tuple[Any, ...]]:
  """Returns every spec with one of the packings and one of the ops."""
  return [(spec, PACKINGS[i % len(PACKINGS)], (SUM, MEAN)[i % 2])
          for i, spec in enumerate(SPECS, start=by)]


class MixedBatchTest(parameterized.TestCase):
  """One batch_reduce of every kind of value, against TensorFlow's own."""

  def assert_as_tensorflow(self, mode: str, ops: Any, reduce_op: Any) -> None:
    ours = test_util.run(
        mode, lambda: batch_reduce(ops, reduce_op, mixed_batch()))
    for i, (mine, other) in enumerate(
        zip(ours, tensorflows_results(mode, reduce_op), strict=True)):
      self.assertEqual(mine, other, f"value {i}")

  # Packs go to any algorithm, so each is tried with each packing; eager
  # code is quick. Graphs get one packing and one op a spec, in rotation.
  @parameterized.product(spec=SPECS, packing=PACKINGS)
  def test_eager(self, spec, packing):
    for reduce_op in (SUM, MEAN):
      self.assert_as_tensorflow("eager", make(spec, **packing), reduce_op)

  @parameterized.parameters(*rotated(0))
  def test_function(self, spec, packing, reduce_op):
    self.assert_as_tensorflow("function", make(spec, **packing), reduce_op)

  @parameterized.parameters(*rotated(3))
  def test_graph_with_session(self, spec, packing, reduce_op):
    self.assert_as_tensorflow("graph", make(spec, **packing), reduce_op)

  @parameterized.parameters(*rotated(0))
  def test_reduce_agrees(self, spec, packing, reduce_op):
    ops, values = make(spec, **packing), mixed_batch()
    self.assertEqual(
        test_util.run("eager", lambda: [
            ops.reduce(reduce_op, v, v) for v in values]),
        test_util.run("eager", lambda: batch_reduce(ops, reduce_op, values)))

  def test_strategys_variables(self):
    strategy = strategy_of(tf_cdops.MultiWorkerAllReduce())
    with strategy.scope():
      variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]
    results = strategy.extended.batch_reduce_to(
        SUM, [(v, v) for v in variables])
    self.assertEqual(arrays(results), [[[4.0, 8.0]] * 4, [12.0] * 4])


class NotAnAllReduceTest(parameterized.TestCase):

  @parameterized.product(kind_of=CLASSES, where=(
      "one device", "one of several", "other devices", "another order",
      "fewer devices", "the same device twice"))
  def test_is_done_on_one_device_quietly(self, kind_of, where):
    # Its default, nccl, would raise here if it were asked to all-reduce.
    ops = kind_of()
    values = vectors([3, 5])
    first, *rest = values[0].values
    destinations = {
        "one device": "/cpu:2",
        "one of several": values[0].values[1],
        "other devices": tf_compat.PerReplica(
            each(float, 8).values[REPLICAS:]),
        "another order": tf_compat.PerReplica((*rest, first)),
        "fewer devices": tf_compat.PerReplica((first, rest[0])),
        "the same device twice": values[0],
    }[where]
    if where == "the same device twice":
      values = [tf_compat.PerReplica((first, first)),
                tf_compat.PerReplica((rest[0], rest[0]))]
    pairs = [(value, destinations) for value in values]
    with no_logs(self):
      ours = test_util.run("eager", lambda: ops.batch_reduce(MEAN, pairs))
    self.assertEqual(ours, test_util.run(
        "eager", lambda: tf.distribute.ReductionToOneDevice().batch_reduce(
            MEAN, pairs)))

  def test_in_one_batch_with_all_reduces(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="xring", num_packs=1)
    (a, b, c), there = vectors([2, 3, 4]), "/cpu:1"
    results = ops.batch_reduce(SUM, [(a, a), (b, there), (c, c)])
    self.assertEqual(
        [r.arrays for r in test_util.run("eager", lambda: results)],
        [sums([a])[0], sums([b])[0][:1], sums([c])[0]])

  def test_batches_on_different_devices(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="rechd", num_packs=1)
    values = [*vectors([2], 2), *vectors([3], 3), *vectors([4], 2)]
    results = batch_reduce(ops, SUM, values)
    self.assertEqual(arrays(results), sums(values))


class EagerTest(parameterized.TestCase):

  @parameterized.parameters("ps", "xring#2", "collective", "auto")
  def test_repeated_batch_plans_nothing_anew(self, spec):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, num_packs=1)
    with mock.patch.object(planner, "plan", wraps=planner.plan) as planned:
      # No other test has batches of these lengths.
      for lengths, plans in (([19, 3, 23], 1), ([19, 3, 29], 2)):
        values = vectors(lengths)
        for _ in range(3):
          self.assertEqual(arrays(batch_reduce(ops, SUM, values)),
                           sums(values))
          self.assertEqual(planned.call_count, plans)

  @parameterized.product(spec=ALONE, replicas=(2, 3))
  def test_results_say_where_they_are(self, spec, replicas):
    values = vectors([5, 1], replicas)
    for result in batch_reduce(make(spec), SUM, values):
      self.assertEqual([part.device for part in result.values],
                       virtual_devices.names(replicas))
      self.assertEqual([part.backing_device for part in result.values],
                       virtual_devices.names(replicas))

  @parameterized.parameters("float16", "bfloat16", "float32", "float64",
                            "int32", "int64", "complex64", "complex128")
  def test_collective_sums(self, dtype):
    value = contract.numbers(3, dtype)
    result = make("collective").reduce(SUM, value, value)
    self.assertEqual({part.dtype.name for part in result.values}, {dtype})
    self.assertEqual(arrays([result]), [[[6, 12, 18]] * 3])

  def test_collective_says_what_it_cannot_sum(self):
    value = contract.numbers(3, "uint8")
    with self.assertRaisesRegex(
        ValueError, "collective can't sum uint8; it sums float16, .*: cast"):
      make("collective").reduce(SUM, value, value)

  def test_collective_is_quiet_about_many_shapes(self):
    """In a process of its own: TensorFlow warns of retracing but twice."""
    outcome = python_process.run_script("""
        from tests import virtual_devices
        import tensorflow as tf
        import tf_cdops

        values = [virtual_devices.per_replica([tf.ones([n])] * 2)
                  for n in range(1, 31)]
        results = tf_cdops.AllReduceCrossDeviceOps(
            "collective", num_packs=0).batch_reduce(
                tf.distribute.ReduceOp.SUM, [(v, v) for v in values])
        print(*(int(tf.reduce_sum(r.values[1])) for r in results))
        """)
    self.assertEqual(outcome.stdout.split(),
                     [str(2 * n) for n in range(1, 31)], outcome.stderr)
    self.assertNotIn("WARNING:tensorflow", outcome.stderr)


if __name__ == "__main__":
  absltest.main()
