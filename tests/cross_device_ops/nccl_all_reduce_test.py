"""Tests of NcclAllReduce, and of nccl where there are no GPUs."""

import logging
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util

import tensorflow as tf

import tf_cdops

SUM = test_util.SUM
each, vectors = class_util.each, class_util.vectors
batch_reduce, arrays = class_util.batch_reduce, class_util.arrays
sums, traced = class_util.sums, class_util.traced
strategy_of, no_logs = class_util.strategy_of, class_util.no_logs


class NcclTest(parameterized.TestCase):

  def test_falls_back_with_one_warning_that_says_why(self):
    ops = tf_cdops.NcclAllReduce(num_packs=2)
    values = vectors([3, 1])
    with self.assertLogs("absl", logging.WARNING) as logs:
      for _ in range(3):
        self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))
        self.assertEqual(arrays([ops.reduce(SUM, values[0], values[0])]),
                         sums(values[:1]))
      traced(lambda: batch_reduce(ops, SUM, vectors([3, 1], 2)))
    self.assertLen(logs.records, 1)
    self.assertRegex(
        logs.records[0].getMessage(),
        r"^NcclAllReduce reduces on one device instead: nccl needs GPU devices "
        r"only; use .*'xring'")

  def test_one_replica_is_no_reason_to_warn(self):
    with no_logs(self):
      value = each(float, 1)
      self.assertEqual(
          float(tf_cdops.NcclAllReduce().reduce(SUM, value, value)), 1.0)

  @parameterized.parameters(
      lambda: tf_cdops.AllReduceCrossDeviceOps(),
      lambda: tf_cdops.AllReduceCrossDeviceOps("xring:8:nccl/ps"),
      lambda: tf_cdops.MultiWorkerAllReduce(all_reduce_spec="psgpu"))
  def test_other_classes_raise_where_gpus_are_needed(self, build):
    ops, value = build(), vectors([3])[0]
    need = (r"`algorithm` \('\S+'\) can't run on \S*CPU:0, .* and 1 more: "
            r"\w+ needs GPU devices only; use 'ps', 'xring' or 'rechd'")
    with self.assertRaisesRegex(ValueError, need):
      ops.reduce(SUM, value, value)
    strategy = strategy_of(ops)
    @tf.function
    def step() -> Any:
      return strategy.run(
          lambda: tf.distribute.get_replica_context().all_reduce(
              SUM, tf.ones([3])))
    with self.assertRaisesRegex(ValueError, need):
      step()

  def test_one_replica_is_no_reason_to_raise(self):
    value = each(float, 1)
    ops = tf_cdops.AllReduceCrossDeviceOps()
    self.assertEqual(float(ops.reduce(SUM, value, value)), 1.0)


if __name__ == "__main__":
  absltest.main()
