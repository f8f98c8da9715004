"""Tests of values whose devices nobody but a strategy or a topology knows."""

from collections.abc import Callable
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.base import tf_compat

SUM = test_util.SUM
REPLICAS, DEVICES = class_util.REPLICAS, class_util.DEVICES
PAIRED, UNEVEN, PAIRS = class_util.PAIRED, class_util.UNEVEN, class_util.PAIRS
make, each, vectors = class_util.make, class_util.each, class_util.vectors
batch_reduce, sums = class_util.batch_reduce, class_util.sums
traced, kind = class_util.traced, class_util.kind
strategy_of = class_util.strategy_of


class WithoutDeviceTest(parameterized.TestCase):
  """A distributed batch, passed into a tf.function, has no devices."""

  @parameterized.parameters(
      lambda: tf_cdops.NcclAllReduce(),
      lambda: tf_cdops.AllReduceCrossDeviceOps("rechd"),
      lambda: tf_cdops.MultiWorkerAllReduce(),
      lambda: make("xring#3", num_packs=2),
      lambda: make("collective", num_packs=1),
      lambda: make("ps:8:hierarchical_copy", num_packs=5),
      lambda: make("auto"),
      lambda: make("ps/xring#3"))
  def test_batch_of_a_dataset(self, build):
    strategy = strategy_of(build())
    count = 2 * REPLICAS
    dataset = tf.data.Dataset.from_tensor_slices({
        "matrix": np.arange(3.0 * count, dtype="f").reshape([count, 3]),
        "vector": np.arange(count, dtype="d"),
        "empty": np.zeros([count, 0], "f")})
    dataset = dataset.batch(count, drop_remainder=True)
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
    devices = []
    @tf.function
    def step(batch: Any) -> Any:
      values = [batch[name] for name in ("matrix", "vector", "empty")]
      self.assertEqual({v.device for value in values for v in value.values},
                       {""})
      results = strategy.extended.batch_reduce_to(
          SUM, [(value, value) for value in values])
      devices.extend([v.device for v in r.values] for r in results)
      return [r.values for r in results]
    with strategy.scope():
      matrix, vector, empty = step(batch)
    rows = np.arange(3.0 * count).reshape([REPLICAS, 2, 3]).sum(0).tolist()
    self.assertEqual([v.numpy().tolist() for v in matrix], [rows] * REPLICAS)
    self.assertEqual([v.numpy().tolist() for v in vector],
                     [[12.0, 16.0]] * REPLICAS)
    self.assertEqual([v.shape for v in empty], [(2, 0)] * REPLICAS)
    self.assertEqual(devices, [DEVICES] * 3)

  def test_slices_passed_into_a_function(self):
    ops = tf_cdops.MultiWorkerAllReduce()
    strategy = strategy_of(ops, 2)
    value = test_util.per_replica_slices(
        ([[1.0]], [2], [3, 1]), ([[2.0], [3.0]], [0, 2], [3, 1]))
    @tf.function
    def step(value: Any) -> Any:
      (result,) = strategy.extended.batch_reduce_to(SUM, [(value, value)])
      return [tf.convert_to_tensor(part) for part in result.values]
    with strategy.scope():
      self.assertEqual([part.numpy().tolist() for part in step(value)],
                       [[[2.0], [0.0], [4.0]]] * 2)


class DeclaredDevicesTest(parameterized.TestCase):
  """Values with no device, and a topology that says where they are."""

  def trace(self, ops: Any, pairs: Callable[[Any], Any]) -> Any:
    """Traces a batch_reduce of arguments, which have no device."""
    values = [v.values for v in vectors([2, 5])]
    @tf.function(autograph=False)
    def step(values: Any) -> Any:
      self.assertEqual({v.device for value in values for v in value}, {""})
      given = [tf_compat.PerReplica(tuple(value)) for value in values]
      results = ops.batch_reduce(SUM, [pairs(value) for value in given])
      return [test_util.local_results(result) for result in results]
    concrete = step.get_concrete_function(values)
    return concrete.graph.get_operations(), step(values)

  def assert_sums(self, results: Any) -> None:
    self.assertEqual([[part.numpy().tolist() for part in parts]
                      for parts in results], sums(vectors([2, 5])))

  @parameterized.product(
      topology=(PAIRED, UNEVEN), spec=(*PAIRS, "xring#2", "auto"),
      destinations=("itself", "others with no device", "the devices"))
  def test_are_reduced_as_if_they_were_there(self, topology, spec,
                                             destinations):
    ops = make(spec, topology=topology, num_packs=1)
    pairs = {
        "itself": lambda v: (v, v),
        "others with no device": lambda v: (
            v, tf_compat.PerReplica(tuple(2.0 * part for part in v.values))),
        "the devices": lambda v: (v, each(float))}[destinations]
    emitted, results = self.trace(ops, pairs)
    self.assert_sums(results)
    values = vectors([2, 5])  # Eager tensors, which do have devices.
    known = traced(lambda: batch_reduce(ops, SUM, values))
    for op_type in ("AddN", "AddV2", "ConcatV2", "CollectiveReduceV2"):
      with self.subTest(op_type):
        self.assertEqual(
            sorted(op.device for op in kind(emitted, op_type)),
            sorted(op.device for op in kind(known, op_type)))

  def test_each_worker_sums_for_itself(self):
    ops = tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="pscpu/pscpu", topology=PAIRED)
    emitted, results = self.trace(ops, lambda v: (v, v))
    self.assert_sums(results)
    # Of each of two values: on both workers, and of the workers on one.
    where = sorted(DEVICES.index(op.device) for op in kind(emitted, "AddN"))
    self.assertLen(where, 6)
    self.assertEqual(set(where), {0, 2})

  def test_of_another_number(self):
    three = tf_cdops.Topology.from_devices(DEVICES[:3])
    ops = tf_cdops.MultiWorkerAllReduce(topology=three)
    with self.assertRaisesRegex(
        ValueError, "`topology` has 3 devices and the value 4 replicas"):
      self.trace(ops, lambda v: (v, v))

  def test_one_device_as_destination_is_no_all_reduce(self):
    ops = tf_cdops.MultiWorkerAllReduce(topology=PAIRED)
    emitted, results = self.trace(ops, lambda v: (v, DEVICES[3]))
    self.assertEqual([len(parts) for parts in results], [1, 1])
    self.assertEqual([op.device for op in kind(emitted, "AddN")],
                     [DEVICES[3]] * 2)

  def test_slices(self):
    ops = tf_cdops.MultiWorkerAllReduce(
        topology=tf_cdops.Topology.from_devices(DEVICES[:2]))
    value = test_util.per_replica_slices(
        ([[1.0]], [2], [3, 1]), ([[2.0], [3.0]], [0, 2], [3, 1]))
    devices = []
    @tf.function
    def step(value: Any) -> Any:
      result = ops.reduce(SUM, value, value)
      devices.extend(part.values.device for part in result.values)
      return [tf.convert_to_tensor(part) for part in result.values]
    self.assertEqual([part.numpy().tolist() for part in step(value)],
                     [[[2.0], [0.0], [4.0]]] * 2)
    self.assertEqual(devices, DEVICES[:2])

  def test_that_are_not_here(self):
    names = [*DEVICES[:3], "/cpu:99"]
    ops = tf_cdops.MultiWorkerAllReduce(
        topology=tf_cdops.Topology.from_devices(names))
    with self.assertRaisesRegex(
        ValueError, r"`topology` \('/device:CPU:99'\) must be a device of this "
        "program; choose one of"):
      self.trace(ops, lambda v: (v, v))

  def test_a_strategys_devices_come_first(self):
    backwards = tf_cdops.Topology.from_devices(DEVICES[::-1])
    strategy = strategy_of(tf_cdops.MultiWorkerAllReduce(topology=backwards))
    with strategy.scope(), self.assertRaisesRegex(
        ValueError, r"`topology` has the devices .*CPU:3', .*they must be the "
        "same, in order"):
      self.trace(strategy.extended._cross_device_ops, lambda v: (v, v))


if __name__ == "__main__":
  absltest.main()
