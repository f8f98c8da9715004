"""Trains models with our class and with TensorFlow's: the bits are the same."""

from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops

# Sums of two don't depend on their order, which a graph's AddN doesn't keep.
_REPLICAS = 2


class _Recorder(tf_cdops.ReductionToOneDevice):
  """Remembers what kinds of values it was asked to reduce in batches."""

  def __init__(self):
    super().__init__()
    self.kinds: list[list[str]] = []

  def batch_reduce_implementation(self, reduce_op: Any, pairs: Any,
                                  options: Any) -> list[Any]:
    self.kinds.append([
        "sparse" if isinstance(value.values[0], tf.IndexedSlices) else "dense"
        for value, _ in pairs])
    return super().batch_reduce_implementation(reduce_op, pairs, options)


def strategy_with(ops: Any) -> tf.distribute.Strategy:
  return tf.distribute.MirroredStrategy(
      virtual_devices.names(_REPLICAS), cross_device_ops=ops)


def train_keras(ops: Any, epochs: int) -> dict[str, list[Any]]:
  """Returns each variable's value on each replica, by the variable's path."""
  tf.keras.utils.set_random_seed(7)
  strategy = strategy_with(ops)
  layers = tf.keras.layers
  with strategy.scope():
    model = tf.keras.Sequential([
        layers.Input((4,)),
        layers.Embedding(10, 4, name="embedding"),
        layers.BatchNormalization(name="normalization"),
        layers.Flatten(),
        layers.Dense(3, name="dense"),
    ], name="model")
    model.compile(
        tf.keras.optimizers.Adam(0.01, name="adam"),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
  numbers = np.random.default_rng(0)
  x, y = numbers.integers(0, 10, (24, 4)), numbers.integers(0, 3, 24)
  model.fit(x, y, batch_size=6, epochs=epochs, shuffle=False, verbose=0)
  variables = (*model.variables, *model.optimizer.variables)
  return {v.path: [copy.numpy().tolist() for copy in
                   strategy.experimental_local_results(v.value)]
          for v in variables}


def train_in_session(ops: Any, steps: int) -> list[list[float]]:
  """Trains y = w x + b in a v1 graph; returns [w, b] of each replica."""
  with tf.Graph().as_default():
    strategy = strategy_with(ops)
    with strategy.scope():
      w = tf.compat.v1.get_variable("w", initializer=1.0)
      b = tf.compat.v1.get_variable("b", initializer=0.0)
      # Powers of two, so that no step rounds.
      optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.25)
    def replica_step() -> Any:
      context = tf.distribute.get_replica_context()
      x = tf.cast(context.replica_id_in_sync_group, tf.float32)
      return optimizer.minimize(lambda: (w * x + b - 4.0) * 0.5)
    train = strategy.group(strategy.extended.call_for_each_replica(
        replica_step))
    copies = [strategy.experimental_local_results(v) for v in (w, b)]
    with test_util.session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      for _ in range(steps):
        session.run(train)
      return [list(values) for values in zip(*session.run(copies),
                                             strict=True)]


class KerasTrainingTest(parameterized.TestCase):

  def test_weights_equal_those_with_tensorflows_class(self):
    ops = _Recorder()
    ours = train_keras(ops, epochs=2)
    theirs = train_keras(tf.distribute.ReductionToOneDevice(), epochs=2)
    self.assertEqual(ours, theirs)
    # The gradients of the embedding, of gamma and beta, of kernel and bias.
    self.assertEqual(ops.kinds, [["sparse"] + ["dense"] * 4])

  def test_replicas_agree_and_everything_was_trained(self):
    before = train_keras(tf_cdops.ReductionToOneDevice(), epochs=0)
    after = train_keras(tf_cdops.ReductionToOneDevice(), epochs=1)
    of_the_model = [path for path in before if path.startswith("model/")]
    self.assertLen(of_the_model, 7)
    for path in of_the_model:
      self.assertNotEqual(before[path], after[path], path)
    for path, copies in after.items():
      # Each replica keeps moving statistics of its own until they are read.
      if "moving" not in path:
        self.assertEqual(copies, [copies[0]] * _REPLICAS, path)

  def test_session_with_v1_optimizer(self):
    ours = train_in_session(tf_cdops.ReductionToOneDevice(), steps=3)
    theirs = train_in_session(tf.distribute.ReductionToOneDevice(), steps=3)
    self.assertEqual(ours, theirs)
    # A step takes 0.25 * 0.5 * (0 + 1) off w, 0.25 * 0.5 * 2 off b.
    self.assertEqual(ours, [[1.0 - 3 * 0.125, -3 * 0.25]] * _REPLICAS)


if __name__ == "__main__":
  absltest.main()
