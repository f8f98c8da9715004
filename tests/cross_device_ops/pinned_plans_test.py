"""Tests of saving the plans of a run, and of following them again."""

import json
import logging
import os
import pathlib
from unittest import mock

from absl.testing import absltest
from tests import class_util
from tests import test_util
from tests import virtual_devices

import tensorflow as tf

import tf_cdops
from tf_cdops import cost
from tf_cdops.execution import executor
from tf_cdops.execution import recent_plans
from tf_cdops.planning import spec_file

SUM = class_util.SUM
_LENGTHS = [3, 700, 3, 5, 40_000]


class PinnedPlansTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.create_tempdir().full_path, "plans.json")

  def read(self):
    return json.loads(pathlib.Path(self.path).read_text())

  def reduced(self, ops, lengths=_LENGTHS, replicas=2):
    """Returns sums in a tf.function, and the plans that were followed."""
    with mock.patch.object(executor, "all_reduce",
                           wraps=executor.all_reduce) as followed:
      results = test_util.run("function", lambda: class_util.batch_reduce(
          ops, SUM, class_util.vectors(lengths, replicas)))
    plans = [call.args[0] for call in followed.call_args_list]
    return [result.arrays for result in results], plans

  def saved(self, **kwargs):
    """Saves a run's plan; returns what it gave, and the plan."""
    ops = tf_cdops.MultiWorkerAllReduce(**kwargs)
    results, (plan,) = self.reduced(ops)
    ops.save_plans(self.path)
    return results, plan

  def pinned(self, **kwargs):
    return tf_cdops.MultiWorkerAllReduce(all_reduce_spec=f"@{self.path}",
                                         **kwargs)

  def test_the_same_plan_and_results(self):
    results, plan = self.saved(all_reduce_spec="xring#2:1k:rechd",
                               num_packs=2)
    self.assertFalse(plan.is_pinned)
    ops = self.pinned(num_packs=7, network="1gbe")
    with class_util.no_logs(self):
      again, (followed,) = self.reduced(ops)
    self.assertEqual(followed.buckets, plan.buckets)
    self.assertTrue(followed.is_pinned)
    self.assertEqual(again, results)
    self.assertIn(f"all_reduce_spec='@{self.path}', num_packs=7", repr(ops))
    before = self.read()["plans"]
    ops.save_plans(self.path)
    self.assertEqual(self.read()["plans"], before)

  def test_what_is_saved(self):
    slow = cost.Network(cost.PRESETS["memory"], cost.Link("slow", 1e-4, 1e7))
    self.saved(all_reduce_spec="auto", network=slow,
               agg_small_grads_max_bytes=64)
    content = self.read()
    self.assertEqual((content["version"], content["tf_cdops"],
                      content["all_reduce_spec"]),
                     (spec_file.FILE_VERSION, tf_cdops.__version__, "auto"))
    self.assertEqual((content["num_packs"],
                      content["agg_small_grads_max_bytes"]), (0, 64))
    self.assertEqual(content["links"], {"inside": None, "across": {
        "name": "slow", "latency_seconds": 1e-4, "bytes_per_second": 1e7,
        "message_seconds": 0.0}})
    plan, = content["plans"]
    self.assertEqual((plan["workers"], plan["tensors"]),
                     ([2], [["float32", 4 * n] for n in _LENGTHS]))

  def test_other_batches_are_told_once(self):
    self.saved(all_reduce_spec="xring", num_packs=1)
    ops = self.pinned()
    with class_util.no_logs(self):  # A metric, say.
      _, (plan,) = self.reduced(ops, [1])
    self.assertEqual([b.algorithm for b in plan.buckets], ["xring"])
    with self.assertLogs("absl", logging.WARNING) as logs:
      _, (plan,) = self.reduced(ops, _LENGTHS[:3])
      self.reduced(ops, _LENGTHS[1:])
    self.assertEqual([b.tensors for b in plan.buckets], [(0, 1, 2)])
    message, = logs.output
    self.assertIn(
        f"MultiWorkerAllReduce: a batch isn't pinned by '{self.path}', and "
        "goes by its spec 'xring': unlike the nearest of its plans, the batch "
        "has 3 tensors of 2,824 bytes and not 5 of 162,844. Save", message)
    with self.assertLogs("absl", logging.WARNING) as logs:
      self.reduced(self.pinned(), replicas=3)
    self.assertIn("is of 1 worker with 3 devices each and not of 1 worker "
                  "with 2 devices each", logs.output[0])

  def test_virtual_workers(self):
    kwargs = {"topology": class_util.UNEVEN}
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto", **kwargs)
    results, (plan,) = self.reduced(ops, replicas=4)
    ops.save_plans(self.path)
    self.assertEqual(self.read()["plans"][0]["workers"], [1, 2, 1])
    again, (followed,) = self.reduced(self.pinned(**kwargs), replicas=4)
    self.assertEqual((again, followed.buckets), (results, plan.buckets))

  def test_the_plain_function(self):
    ops = tf_cdops.AllReduceCrossDeviceOps("rechd#3")
    self.reduced(ops, [8])
    ops.save_plans(self.path)
    tensors = []
    for name in virtual_devices.names(2):
      with tf.device(name):
        tensors.append(tf.range(8.0))
    with mock.patch.object(executor, "all_reduce",
                           wraps=executor.all_reduce) as followed:
      total, _ = tf_cdops.all_reduce(tensors, f"@{self.path}")
    self.assertTrue(followed.call_args.args[0].is_pinned)
    self.assertEqual(total.numpy().tolist(), [2.0 * i for i in range(8)])

  def test_reproducible_takes_plans_that_sum_in_order(self):
    self.saved(all_reduce_spec="auto", reproducible=True)
    _, (plan,) = self.reduced(self.pinned(reproducible=True))
    self.assertTrue(plan.is_pinned)
    self.saved(all_reduce_spec="xring")
    content = self.read() | {"all_reduce_spec": "auto"}
    pathlib.Path(self.path).write_text(json.dumps(content))
    with self.assertRaisesRegex(ValueError, "'xring' in `all_reduce_spec`"):
      self.pinned(reproducible=True)

  def test_ever_new_shapes(self):
    ops = tf_cdops.AllReduceCrossDeviceOps("ps")
    for length in (*range(1, recent_plans._MOST + 10), 10):
      class_util.batch_reduce(ops, SUM, class_util.vectors([length], 2))
    ops.save_plans(self.path)
    lengths = [plan["tensors"][0][1] // 4 for plan in self.read()["plans"]]
    self.assertEqual(lengths, [*range(11, recent_plans._MOST + 10), 10])

  def test_before_the_first_step(self):
    with self.assertRaisesRegex(
        ValueError, r"^`path` \('.*plans.json'\) must be given after a first "
        "step: nothing has been all-reduced yet"):
      tf_cdops.MultiWorkerAllReduce().save_plans(self.path)
    self.assertFalse(os.path.exists(self.path))


if __name__ == "__main__":
  absltest.main()
