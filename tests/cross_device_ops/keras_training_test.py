"""Trains models: weights as with TensorFlow's class, or as on one device."""

import functools
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


_OPTIMIZERS = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.1),
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: tf.keras.optimizers.Adam(0.1),
    "adagrad": lambda: tf.keras.optimizers.Adagrad(0.1),
    "rmsprop": lambda: tf.keras.optimizers.RMSprop(0.1),
}
# A batch of four examples; the first two are the first replica's.
_BATCHES = {
    "distinct": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "in a replica": [[0, 0], [1, 0], [4, 4], [5, 6]],
    "in both": [[0, 0], [1, 2], [0, 2], [2, 5]],
}
_SQUARING = (*(("adam", indices) for indices in _BATCHES),
             ("adagrad", "in both"), ("rmsprop", "in both"))
# What is only summed comes to the same whatever repeats where: all repeat here.
_SUMMING = (("sgd", "in both"), ("momentum", "in both"))
_OTHERS = ("deduplicate", "dense")


class _Dense(tf.keras.layers.Embedding):
  """An embedding whose gradients are dense."""

  def call(self, inputs: Any) -> Any:
    return tf.one_hot(inputs, self.input_dim) @ self.embeddings


@functools.cache
def train_embedding(optimizer: str, indices: str, sparse: str | None = None,
                    layer: Any = tf.keras.layers.Embedding) -> np.ndarray:
  """Returns the weights; on one device if `sparse` is None, else on two."""
  numbers = np.random.default_rng(0)
  start = tf.constant_initializer(numbers.normal(size=(8, 3)))
  y = numbers.normal(size=(12, 1))
  strategy = (
      tf.distribute.OneDeviceStrategy(virtual_devices.names(1)[0])
      if sparse is None else
      strategy_with(tf_cdops.MultiWorkerAllReduce(sparse=sparse)))
  with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((2,), dtype="int32"),
        layer(8, 3, embeddings_initializer=start), tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(_OPTIMIZERS[optimizer](), "mse", jit_compile=False)
  model.fit(np.array(_BATCHES[indices] * 3), y, batch_size=4, shuffle=False,
            verbose=0)
  return model.layers[0].embeddings.numpy()


class SparseModesTest(parameterized.TestCase):
  """What the documentation says of `sparse`, against one device."""

  def assert_alike(self, left, right):
    np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)

  def assert_different(self, left, right):
    self.assertGreater(np.max(np.abs(left - right)), 0.01)

  @parameterized.parameters(*_SQUARING, *_SUMMING)
  def test_gather_trains_as_one_device(self, optimizer, indices):
    self.assert_alike(train_embedding(optimizer, indices, "gather"),
                      train_embedding(optimizer, indices))

  @parameterized.parameters(*_SUMMING, ("adam", "distinct"))
  def test_others_do_with_sgd_or_distinct_indices(self, optimizer, indices):
    for sparse in _OTHERS:
      self.assert_alike(train_embedding(optimizer, indices, sparse),
                        train_embedding(optimizer, indices))

  @parameterized.parameters(case for case in _SQUARING if case[1] != "distinct")
  def test_others_differ_where_squared_and_repeated(self, optimizer, indices):
    for sparse in _OTHERS:
      self.assert_different(train_embedding(optimizer, indices, sparse),
                            train_embedding(optimizer, indices))

  @parameterized.parameters(*_SQUARING)
  def test_dense_trains_as_one_device_with_dense_gradients(self, optimizer,
                                                           indices):
    self.assert_alike(train_embedding(optimizer, indices, "dense"),
                      train_embedding(optimizer, indices, layer=_Dense))

  def test_deduplicate_does_not_reach_across_replicas(self):
    def weights(indices: str, sparse: str) -> np.ndarray:
      return train_embedding("adam", indices, sparse)

    self.assert_alike(weights("in a replica", "deduplicate"),
                      weights("in a replica", "dense"))
    self.assert_different(weights("in both", "deduplicate"),
                          weights("in both", "dense"))


if __name__ == "__main__":
  absltest.main()
