"""Calls of TensorFlow 1 programs: served, or told what to write instead."""

import inspect
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import test_util
from tests import virtual_devices

import tensorflow as tf

import tf_cdops
from tf_cdops import cross_device_ops
from tf_cdops.base import tensorflow_1

SUM = test_util.SUM
CLASSES = (tf_cdops.ReductionToOneDevice, tf_cdops.AllReduceCrossDeviceOps,
           tf_cdops.NcclAllReduce, tf_cdops.MultiWorkerAllReduce)
NAMES = (
    "AllReduceCrossTowerOps", "CollectiveAllReduce", "CollectiveCommunication",
    "CollectiveHints", "CrossDeviceOps", "CrossTowerOps",
    "HierarchicalCopyAllReduce", "MirroredStrategy",
    "ReductionToOneDeviceCrossDeviceOps", "ReductionToOneDeviceCrossTowerOps",
    "choose_the_best", "cross_tower_ops")


def value() -> Any:
  return virtual_devices.per_replica([1.0, 2.0])


class NamesTest(parameterized.TestCase):

  @parameterized.product(module=(tf_cdops, cross_device_ops), name=NAMES)
  def test_says_what_to_write(self, module, name):
    self.assertFalse(hasattr(module, name))
    self.assertNotIn(name, dir(module))
    with self.assertRaisesRegex(
        AttributeError, rf"^module '{module.__name__}' has no attribute "
        rf"'{name}'; write (tf_cdops|tf\.distribute)\b"):
      getattr(module, name)

  def test_the_list_is_whole(self):
    self.assertCountEqual(NAMES, tensorflow_1._NAMES)

  @parameterized.parameters(*tensorflow_1._NAMES.values())
  def test_what_to_write_is_there(self, remedy):
    package, *path = remedy.partition("(")[0].partition(",")[0].split(".")
    found: Any = {"tf": tf, "tf_cdops": tf_cdops}[package]
    for part in path:
      found = getattr(found, part)

  def test_other_names_are_just_missing(self):
    for module in (tf_cdops, cross_device_ops):
      with self.assertRaisesRegex(
          AttributeError,
          f"^module '{module.__name__}' has no attribute 'Nonsense'$"):
        _ = module.Nonsense


class ArgumentsTest(parameterized.TestCase):

  @parameterized.product(kind_of=CLASSES, keyword=(
      ("aggregation", "reduce_op"), ("method_string", "reduce_op"),
      ("experimental_hints", "options")))
  def test_keywords_that_are_gone(self, kind_of, keyword):
    old, new = keyword
    ops, given = kind_of(), value()
    with self.assertRaisesRegex(
        ValueError, rf"^`{old}` \(3\) is no argument of `reduce`; write "
        rf"{new}=\.$"):
      ops.reduce(per_replica_value=given, destinations=given, **{old: 3})
    with self.assertRaisesRegex(
        ValueError, rf"^`{old}` \(3\) is no argument of `batch_reduce`"):
      ops.batch_reduce(value_destination_pairs=[(given, given)], **{old: 3})

  def test_per_device_value(self):
    given = value()
    with self.assertRaisesRegex(
        ValueError, r"^`per_device_value` \((?s:.*)\) is no argument of "
        r"`reduce`; write per_replica_value=\.$"):
      tf_cdops.ReductionToOneDevice().reduce(
          SUM, per_device_value=given, destinations=given)

  def test_other_keywords_are_errors_as_ever(self):
    given = value()
    with self.assertRaisesRegex(TypeError, "unexpected keyword .*'nonsense'"):
      tf_cdops.ReductionToOneDevice().reduce(SUM, given, given, nonsense=1)

  def test_signatures_are_those_of_tensorflow(self):
    for name in ("reduce", "batch_reduce", "broadcast"):
      theirs = getattr(tf.distribute.CrossDeviceOps, name)
      for kind_of in CLASSES:
        self.assertEqual(
            list(inspect.signature(getattr(kind_of, name)).parameters),
            list(inspect.signature(theirs).parameters))

  @parameterized.product(kind_of=CLASSES, reduce_op=(
      ("sum", "SUM"), ("mean", "MEAN"), ("MEAN", "MEAN"),
      (tf.VariableAggregation.SUM, "SUM"),
      (tf.compat.v1.VariableAggregation.MEAN, "MEAN")))
  def test_reduce_op(self, kind_of, reduce_op):
    old, new = reduce_op
    ops, given = kind_of(), value()
    for call in (lambda: ops.reduce(old, given, given),
                 lambda: ops.batch_reduce(old, [(given, given)])):
      with self.assertRaisesRegex(
          ValueError, r"^`reduce_op` \(.*\) must be tf\.distribute\.ReduceOp\."
          r"SUM or tf\.distribute\.ReduceOp\.MEAN\. Write "
          rf"tf\.distribute\.ReduceOp\.{new}\.$"):
        call()

  @parameterized.parameters(
      tf.VariableAggregation.ONLY_FIRST_REPLICA,
      tf.compat.v1.VariableAggregation.ONLY_FIRST_TOWER)
  def test_only_the_first_replica(self, aggregation):
    given = value()
    with self.assertRaisesRegex(
        ValueError, r"MEAN\. Nothing is reduced then: write strategy\."
        r"experimental_local_results\(value\)\[0\]\.$"):
      tf_cdops.MultiWorkerAllReduce().reduce(aggregation, given, given)

  @parameterized.product(kind_of=CLASSES, destinations=(
      virtual_devices.names(2), ("/cpu:0",), None))
  def test_destinations(self, kind_of, destinations):
    ops, given = kind_of(), value()
    for call in (lambda: ops.reduce(SUM, given, destinations),
                 lambda: ops.batch_reduce(SUM, [(given, destinations)]),
                 lambda: ops.broadcast(tf.constant(1.0), destinations)):
      with self.assertRaisesRegex(
          ValueError, r"`destinations` \(.*\) must be .* or a device string\. "
          "For an all-reduce, pass the value itself"):
        call()

  def test_one_string_of_several_workers(self):
    with self.assertRaisesRegex(
        ValueError, r"`worker_devices` \('/job:worker'\) must be a list of "
        r"device strings, one per worker, such as \['/job:worker/task:0', "):
      tf_cdops.MultiWorkerAllReduce("/job:worker", 2)

  @parameterized.parameters("hierarchical_copy", "nccl")
  def test_names_of_algorithms(self, name):
    self.assertIn(repr(name), repr(tf_cdops.AllReduceCrossDeviceOps(
        name, num_packs=8, agg_small_grads_max_bytes=0,
        agg_small_grads_max_group=0)))


if __name__ == "__main__":
  absltest.main()
