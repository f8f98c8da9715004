"""Tests of `topology`, `worker_devices` and `num_gpus_per_worker`."""

import itertools
import logging
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util

import tensorflow as tf

import tf_cdops
from tf_cdops.base import tf_compat

SUM = test_util.SUM
REPLICAS, PAIRED = class_util.REPLICAS, class_util.PAIRED
UNEVEN, PAIRS = class_util.UNEVEN, class_util.PAIRS
vectors, batch_reduce = class_util.vectors, class_util.batch_reduce
arrays, sums, traced = class_util.arrays, class_util.sums, class_util.traced
kind, no_logs = class_util.kind, class_util.no_logs


class WorkersTest(parameterized.TestCase):

  def summing_devices(self, ops: Any, replicas: int = REPLICAS) -> list[str]:
    """Returns where a batch of one is summed; checks the sum, too."""
    values = vectors([6], replicas)
    self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors([6], replicas)))
    return sorted(tf.DeviceSpec.from_string(op.device).device_index
                  for op in kind(emitted, "AddN"))

  @parameterized.parameters(
      (None, [0]), (PAIRED, [0, 0, 2]), (UNEVEN, [0, 1]))
  def test_topology_declares_virtual_workers(self, topology, where):
    """One sum for each worker with several devices, and one across."""
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="pscpu/pscpu",
                                        topology=topology)
    self.assertEqual(self.summing_devices(ops), where)

  def test_topology_may_have_short_names(self):
    short = [f"/cpu:{i}" for i in range(REPLICAS)]
    ops = tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="pscpu/pscpu",
        topology=tf_cdops.Topology.from_devices(short, [short[:2], short[2:]]))
    self.assertEqual(self.summing_devices(ops), [0, 0, 2])

  @parameterized.product(topology=(PAIRED, UNEVEN), spec=PAIRS)
  def test_pairs_on_virtual_workers(self, topology, spec):
    values = vectors([1, 7, 16])
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec,
                                        topology=topology, num_packs=2)
    self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))

  @parameterized.parameters(3, 5)
  def test_topology_of_other_devices(self, replicas):
    value = vectors([2], replicas)[0]
    ops = tf_cdops.MultiWorkerAllReduce(topology=PAIRED)
    with self.assertRaisesRegex(
        ValueError, r"`topology` has the devices \[\S*CPU:0.*CPU:3'\], and the "
        rf"values are on \[.*CPU:{replicas - 1}'\]; they must be the same"):
      ops.reduce(SUM, value, value)

  @parameterized.parameters(
      (None, [0]),
      (["/job:localhost"], [0]),
      (["/job:localhost/replica:0/task:0"], [0]),
      (["/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"], [0]))
  def test_worker_devices_that_match(self, worker_devices, where):
    ops = tf_cdops.MultiWorkerAllReduce(
        worker_devices, 0, all_reduce_spec="pscpu/pscpu")
    self.assertEqual(self.summing_devices(ops), where)

  @parameterized.parameters(
      ["/job:worker/task:0"], ["/job:localhost", "/job:worker/task:1"],
      ["/cpu:0"], ["/cpu:0", "/cpu:1", "/cpu:2"], ["/task:1"],
      ["/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3", "/cpu:4"],
      ["/job:localhost", "/cpu:3"])
  def test_worker_devices_that_do_not_match(self, *worker_devices):
    ops = tf_cdops.MultiWorkerAllReduce(list(worker_devices))
    value = vectors([2])[0]
    with self.assertRaisesRegex(
        ValueError, r"`worker_devices` \(\['/.*\]\) must be the workers of the "
        r"values' devices, which are \['/job:localhost/.*CPU:3'\]"):
      ops.reduce(SUM, value, value)

  def test_another_number_of_gpus_is_told_once(self):
    ops = tf_cdops.MultiWorkerAllReduce(num_gpus_per_worker=2)
    values = vectors([2, 3])
    with self.assertLogs("absl", logging.WARNING) as logs:
      for _ in range(3):
        self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))
    self.assertLen(logs.records, 1)
    self.assertRegex(
        logs.records[0].getMessage(),
        r"^MultiWorkerAllReduce goes on with the GPUs it found, of each worker "
        r"\[0\], which isn't `num_gpus_per_worker` \(2\): the devices are "
        r"\['/job:localhost/.*CPU:3'\]\.$")

  def test_each_object_tells_of_each_finding(self):
    pairs = [(ops, value) for ops in (
        tf_cdops.MultiWorkerAllReduce(num_gpus_per_worker=1),
        tf_cdops.MultiWorkerAllReduce(num_gpus_per_worker=1))
             for value in vectors([1], 2) + vectors([1], 3)]
    with self.assertLogs("absl", logging.WARNING) as logs:
      for ops, value in pairs * 2:
        ops.reduce(SUM, value, value)
    self.assertLen(logs.records, 4)

  @parameterized.parameters(
      (["CPU:0"], r"worker \[0, 0\], which .*_worker` \(2\)"),
      (["GPU:0"], r"worker \[1, 1\], which .*_worker` \(2\)"),
      (["GPU:0", "GPU:1"], None))
  def test_gpus_of_the_workers_that_tensorflows_tests_name(self, kinds, found):
    workers = [f"/job:worker/replica:0/task:{i}" for i in range(2)]
    ops = tf_cdops.MultiWorkerAllReduce(
        workers, 2, ("pscpu/pscpu", 2, -1), 0, 0, 0)
    with tf.Graph().as_default():
      parts = []
      for worker, name in itertools.product(workers, kinds):
        with tf.device(f"{worker}/device:{name}"):
          parts.append(tf.zeros([2]))
      value = tf_compat.PerReplica(tuple(parts))
      with (self.assertLogs("absl", logging.WARNING) if found
            else no_logs(self)) as logs:
        result = ops.reduce(SUM, value, value)
    self.assertEqual([part.device for part in result.values],
                     [part.device for part in parts])
    if found:
      self.assertRegex(logs.records[0].getMessage(), found)


if __name__ == "__main__":
  absltest.main()
