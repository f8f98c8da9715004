"""Emitted ops have names that tell their bucket, and cost no node."""

import collections
import contextlib
import copy
import gc
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices

import tensorflow as tf

import tf_cdops
from tf_cdops.base import tf_compat
from tf_cdops.execution import emitted

_DEVICES = virtual_devices.names(3)


def emit(ops, shapes=((4,), (2, 2), (9,))):
  """Reduces tensors of these shapes, in the graph around."""
  batch = []
  for shape in shapes:
    parts = []
    for name in _DEVICES:
      with tf.device(name):
        parts.append(tf.ones(shape))
    value = tf_compat.PerReplica(tuple(parts))
    batch.append((value, value))
  return ops.batch_reduce(tf.distribute.ReduceOp.SUM, batch)


def graph_of(ops, scope=None):
  """The graph of a function that reduces a batch, in a user's scope."""
  def step():
    with tf.name_scope(scope) if scope else contextlib.nullcontext():
      return [value.values for value in emit(ops)]
  return tf.function(step, autograph=False).get_concrete_function()


def without_scopes():
  stack = contextlib.ExitStack()
  for name in ("batch_scope", "bucket_scope"):
    stack.enter_context(mock.patch.object(
        emitted, name, side_effect=lambda *_: contextlib.nullcontext()))
  return stack


def ops_of(spec, **kwargs):
  return tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, **kwargs)


class EmittedTest(parameterized.TestCase):

  def names(self, graph):
    return [op.name for op in graph.get_operations() if "tf_cdops" in op.name]

  def test_names_in_a_function(self):
    names = self.names(graph_of(ops_of("xring")).graph)
    self.assertEqual({name.split("/")[1] for name in names},
                     {"bucket_0", "bucket_1", "bucket_2"})
    for name in names:
      self.assertRegex(name, r"^tf_cdops/bucket_\d/xring/\w+$")

  def test_under_the_scopes_of_the_caller(self):
    for name in self.names(graph_of(ops_of("ps#2"), "mine").graph):
      self.assertRegex(name, r"^mine/tf_cdops/bucket_\d/ps/\w+$")

  def test_a_pair(self):
    topology = tf_cdops.Topology.from_devices(
        _DEVICES, workers=[_DEVICES[:2], _DEVICES[2:]])
    for name in self.names(graph_of(ops_of(
        "ps/xring", topology=topology)).graph):
      self.assertRegex(name, r"^tf_cdops/bucket_\d/ps/xring/\w+$")

  def test_a_second_batch_of_a_graph_has_another_name(self):
    ops = ops_of("ps")
    function = tf.function(lambda: [emit(ops), emit(ops)] and 1,
                           autograph=False).get_concrete_function()
    self.assertEqual({name.split("/")[0]
                      for name in self.names(function.graph)},
                     {"tf_cdops", "tf_cdops_1"})
    self.assertEqual([batch.scope for batch, _ in ops.emitted_batches()],
                     ["tf_cdops", "tf_cdops_1"])

  def test_in_a_v1_graph(self):
    with tf.Graph().as_default() as graph:
      results = emit(ops_of("xring"))
      with tf.compat.v1.Session(graph=graph) as session:
        total = session.run(results[0].values[2])
    self.assertAllEqual(total)
    self.assertLen({name.split("/")[1] for name in self.names(graph)}, 3)

  def assertAllEqual(self, total):
    self.assertEqual(total.tolist(), [3.0] * 4)

  @parameterized.parameters("xring", "ps#2", "rechd", "collective", "auto")
  def test_no_node_is_added(self, spec):
    def counts():
      return collections.Counter(
          op.type for op in graph_of(ops_of(spec)).graph.get_operations())
    named = counts()
    with without_scopes():
      self.assertEqual(named, counts())

  def test_eager_ops_need_no_name(self):
    ops = ops_of("xring")
    self.assertEqual(emit(ops)[2].values[1].numpy().tolist(), [3.0] * 9)
    self.assertEqual(ops.emitted_batches(), [])

  def test_what_was_emitted_is_known_while_its_graph_lives(self):
    ops = ops_of("ps", num_packs=1)
    ops.name_tensors([tf.Variable(tf.ones(shape), name=f"v{i}")
                      for i, shape in enumerate(((4,), (2, 2), (9,)))])
    function = graph_of(ops)
    (batch, names), = ops.emitted_batches()
    self.assertEqual(names, ("v0", "v1", "v2"))
    self.assertEqual([bucket.num_bytes for bucket in batch.plan.buckets],
                     [4 * (4 + 4 + 9)])
    self.assertIs(batch.graph(), function.graph)
    self.assertEqual(copy.deepcopy(ops).emitted_batches(), [])
    del function
    gc.collect()
    self.assertEqual(ops.emitted_batches(), [])

  def test_odd_names_of_algorithms(self):
    with tf.Graph().as_default(), emitted.bucket_scope(3, "my ring/a+b"):
      self.assertEqual(tf.constant(1).op.name, "bucket_3/my_ring/a_b/Const")


if __name__ == "__main__":
  absltest.main()
