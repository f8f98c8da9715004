"""Tests of which tensors travel together, by arguments and by a file."""

import json
from collections.abc import Callable
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util

import tensorflow as tf

import tf_cdops

SUM = test_util.SUM
REPLICAS, DEVICES = class_util.REPLICAS, class_util.DEVICES
vectors, batch_reduce = class_util.vectors, class_util.batch_reduce
traced, kind = class_util.traced, class_util.kind
strategy_of = class_util.strategy_of


class PackingTest(parameterized.TestCase):

  def packs(self, values: Callable[[], list[Any]], options: Any = None,
            **kwargs: Any) -> int:
    """Counts packs: "ps" emits one sum, on one device, for each."""
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", **kwargs)
    emitted = traced(lambda: batch_reduce(ops, SUM, values(), options))
    return len(kind(emitted, "AddN"))

  @parameterized.parameters(
      (0, 64, 8), (1, 0, 1), (1, 64, 2), (1, 48, 3), (1, 16, 8), (1, 1, 8),
      (3, 0, 3), (3, 64, 3), (3, 32, 4), (9, 0, 8))
  def test_options_cap_packs(self, num_packs, cap, expected):
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=cap)
    self.assertEqual(self.packs(lambda: vectors([4] * 8), options,
                                num_packs=num_packs), expected)

  def test_options_of_a_strategys_call_cap_packs(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", num_packs=1)
    strategy = strategy_of(ops)
    def emit(cap: int) -> Any:
      values = vectors([4] * 8)
      return strategy.extended.batch_reduce_to(
          SUM, [(v, v) for v in values],
          tf.distribute.experimental.CommunicationOptions(bytes_per_pack=cap))
    self.assertLen(kind(traced(lambda: emit(0)), "AddN"), 1)
    self.assertLen(kind(traced(lambda: emit(64)), "AddN"), 2)

  @parameterized.parameters(
      ([4] * 8, "Pack", "Unpack"), ([4] * 7 + [5], "ConcatV2", "SplitV"))
  def test_a_pack_is_joined_once_on_each_device(self, lengths, join, part):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", num_packs=1)
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors(lengths)))
    for kind_of_op in (join, part):
      self.assertCountEqual([op.device for op in kind(emitted, kind_of_op)],
                            DEVICES)
    self.assertEmpty(kind(emitted, "Reshape"))


class FileTest(parameterized.TestCase):
  """A file's spec is run as it was measured: packed."""

  def path(self, **keys: Any) -> str:
    content = json.dumps({"all_reduce_spec": "ps"} | keys)
    return "@" + self.create_tempfile("spec.json", content).full_path

  def packs(self, ops: Any) -> int:
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors([4] * 8)))
    return len(kind(emitted, "AddN"))

  @parameterized.parameters(
      ({}, 2), ({"num_packs": 1}, 1), ({"num_packs": 3}, 3),
      ({"agg_small_grads_max_bytes": 4}, 8),
      ({"agg_small_grads_max_group": 2}, 4),
      ({"agg_small_grads_max_bytes": 16, "agg_small_grads_max_group": 8}, 1))
  def test_multi_worker(self, given, expected):
    path = self.path(agg_small_grads_max_bytes=16, agg_small_grads_max_group=4)
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=path, **given)
    self.assertEqual(self.packs(ops), expected)

  @parameterized.parameters(
      ({}, 2), ({"num_packs": 0}, 8), ({"num_packs": 3}, 3),
      ({"num_packs": 0, "agg_small_grads_max_bytes": 16,
        "agg_small_grads_max_group": 8}, 1))
  def test_all_reduce(self, given, expected):
    path = self.path(num_packs=2)
    self.assertEqual(
        self.packs(tf_cdops.AllReduceCrossDeviceOps(path, **given)), expected)

  @parameterized.parameters(
      ({}, 1, 8), ({"num_packs": 0}, 8, 8), ({"num_packs": 2}, 2, 2))
  def test_what_a_file_does_not_say(self, keys, all_reduce, multi_worker):
    path = self.path(**keys)
    self.assertEqual(self.packs(tf_cdops.AllReduceCrossDeviceOps(path)),
                     all_reduce)
    self.assertEqual(
        self.packs(tf_cdops.MultiWorkerAllReduce(all_reduce_spec=path)),
        multi_worker)

  def test_options_cap_packs(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=self.path(num_packs=1))
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=64)
    emitted = traced(
        lambda: batch_reduce(ops, SUM, vectors([4] * 8), options))
    self.assertLen(kind(emitted, "AddN"), 2)

  def test_function(self):
    results = tf_cdops.all_reduce(
        list(vectors([4])[0].values), self.path(num_packs=1))
    self.assertLen(results, REPLICAS)

  def test_settings_that_are_shown_are_those_of_the_file(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=self.path(num_packs=2))
    self.assertStartsWith(
        repr(ops), "MultiWorkerAllReduce(all_reduce_spec='ps', num_packs=2, ")

  def test_malformed(self):
    path = self.path(num_packs="two")
    for make_ops in (
        tf_cdops.AllReduceCrossDeviceOps,
        lambda spec: tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec)):
      with self.assertRaisesRegex(
          ValueError, rf"\('{path}'\): its 'num_packs' \('two'\) must be"):
        make_ops(path)


if __name__ == "__main__":
  absltest.main()
