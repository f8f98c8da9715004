"""Trains with every algorithm: weights are those of TensorFlow's own class."""

import functools
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops

REPLICAS = 4
STEPS = 5
BATCH = 2 * REPLICAS
DEVICES = virtual_devices.names(REPLICAS)
WORKERS = tf_cdops.Topology.from_devices(DEVICES, [DEVICES[:2], DEVICES[2:]])

SPECS = (
    *(algorithm.name for algorithm in tf_cdops.all_reduce_algorithms()
      if not algorithm.device_types),
    "pscpu/pscpu#2", "ps/xring#3", "rechd/collective")
# Every spec with every packing is the matter of class_results_test.
PACKED = tuple((spec, (0, 2)[i % 2]) for i, spec in enumerate(SPECS))


def ops_for(spec: str, num_packs: int, **kwargs: Any) -> Any:
  return tf_cdops.MultiWorkerAllReduce(
      all_reduce_spec=spec, num_packs=num_packs,
      topology=WORKERS if "/" in spec else None, **kwargs)


def fit(ops: Any, layers: list[Any], loss: Any, learning_rate: float, x: Any,
        y: Any, **kwargs: Any) -> list[list[Any]]:
  """Returns each variable's value on each replica after STEPS steps."""
  tf.keras.utils.set_random_seed(3)
  strategy = tf.distribute.MirroredStrategy(DEVICES, cross_device_ops=ops)
  with strategy.scope():
    model = tf.keras.Sequential([layer() for layer in layers])
    model.compile(tf.keras.optimizers.SGD(learning_rate), loss,
                  jit_compile=False, **kwargs)
  model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
  return [[part.numpy() for part in
           strategy.experimental_local_results(variable.value)]
          for variable in model.variables]


def fit_model(ops: Any, **kwargs: Any) -> list[list[Any]]:
  """Trains an embedding (whose gradients are sparse), a norm, and a layer."""
  layers = tf.keras.layers
  numbers = np.random.default_rng(0)
  return fit(
      ops, [lambda: layers.Input((3,)), lambda: layers.Embedding(10, 4),
            layers.BatchNormalization, layers.Flatten,
            lambda: layers.Dense(3)],
      tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), 0.5,
      numbers.integers(0, 10, (BATCH * STEPS, 3)),
      numbers.integers(0, 3, BATCH * STEPS), **kwargs)


def fit_integers(ops: Any, **kwargs: Any) -> list[list[Any]]:
  """Trains on signs: a mean absolute error's gradients are small integers."""
  numbers = np.random.default_rng(1)
  x = numbers.integers(-3, 4, (BATCH * STEPS, 5)).astype("float32")
  y = numbers.integers(-9, 10, (BATCH * STEPS, 2)).astype("float32")
  layers = tf.keras.layers
  return fit(
      ops, [lambda: layers.Input((5,)),
            lambda: layers.Dense(2, kernel_initializer="ones")],
      "mae", 0.5, x, y, **kwargs)


@functools.cache  # One reference serves every spec.
def reference(train: Any) -> list[list[Any]]:
  return train(tf.distribute.ReductionToOneDevice())


class KerasTest(parameterized.TestCase):

  # On the fabric, as TensorFlow's collective, as a pair; that integers come out
  # the same with every spec is below, and what is sparse travels by none.
  @parameterized.parameters(("xring", 2), ("collective", 0), ("ps/xring#3", 2))
  def test_weights_are_tensorflows_to_rounding(self, spec, num_packs):
    ours = fit_model(ops_for(spec, num_packs))
    theirs = reference(fit_model)
    self.assertLen(ours, 7)
    for mine, other in zip(ours, theirs, strict=True):
      np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)

  @parameterized.parameters(*PACKED)
  def test_integers_are_tensorflows_exactly(self, spec, num_packs):
    ours = fit_integers(ops_for(spec, num_packs))
    for mine, other in zip(ours, reference(fit_integers), strict=True):
      np.testing.assert_array_equal(mine, other)

  def test_references_were_trained(self):
    """Else equal weights would prove nothing."""
    for train in (fit_model, fit_integers):
      first, *others = reference(train)[0]
      self.assertNotEqual(np.ptp(first), 0.0)
      for replica in others:
        np.testing.assert_array_equal(first, replica)
    kernel, bias = (parts[0] for parts in reference(fit_integers))
    # Sums of +-x over the rows, halved by the rate and divided by the number
    # of outputs: multiples of 1/32 that float32 holds exactly.
    for weights in (kernel - 1.0, bias):
      self.assertTrue(np.any(weights))
      np.testing.assert_array_equal(weights * 32, np.round(weights * 32))

  @parameterized.parameters(
      {"sparse": "dense", "self_check": True},
      {"sparse": "deduplicate", "reproducible": True})
  def test_settings_change_no_weight(self, **settings):
    ours = fit_model(ops_for("ps", 1, **settings))
    for mine, other in zip(ours, reference(fit_model), strict=True):
      np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)

  def test_several_steps_in_one_function(self):
    ours = fit_integers(ops_for("collective", 0), steps_per_execution=STEPS)
    for mine, other in zip(ours, reference(fit_integers), strict=True):
      np.testing.assert_array_equal(mine, other)


def train_in_session(ops: Any) -> list[list[Any]]:
  """Trains in a v1 graph; returns every variable's value on each replica."""
  with tf.Graph().as_default():
    strategy = tf.distribute.MirroredStrategy(DEVICES, cross_device_ops=ops)
    with strategy.scope():
      variables = [
          tf.compat.v1.get_variable(
              name, initializer=tf.reshape(tf.range(tf.reduce_prod(shape),
                                                    dtype=tf.float32), shape))
          for name, shape in (("table", [6, 2]), ("w", [2, 3]), ("b", [3]))]
      # Powers of two, so that no step rounds.
      optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.25)
    table, w, b = variables
    def replica_step() -> Any:
      context = tf.distribute.get_replica_context()
      replica = context.replica_id_in_sync_group
      rows = tf.nn.embedding_lookup(table, [0, replica + 1, replica + 1])
      def loss() -> Any:
        return (tf.reduce_sum(rows) + tf.reduce_sum(b)
                * tf.cast(replica, tf.float32) + 0.5 * tf.reduce_sum(
                    w * [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
      return optimizer.minimize(loss())
    train = strategy.group(
        strategy.extended.call_for_each_replica(replica_step))
    copies = [strategy.experimental_local_results(v) for v in variables]
    with test_util.session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      for _ in range(STEPS):
        session.run(train)
      return [[part.tolist() for part in parts]
              for parts in session.run(copies)]


class SessionTest(parameterized.TestCase):

  @parameterized.parameters(
      ("pscpu/pscpu#2", 0), ("xring:8:collective", 2), ("rechd", 1),
      ("ps/xring#3", 1), ("auto", 0))
  def test_weights_are_tensorflows_exactly(self, spec, num_packs):
    ours = train_in_session(ops_for(spec, num_packs))
    self.assertEqual(ours, reference(train_in_session))
    table, w, b = (parts[0] for parts in ours)
    # A step takes 0.25 * (0 + 1 + 2 + 3) off b, and 0.25 * 4 * 0.5 off w[0][0].
    self.assertEqual(b, [i - STEPS * 1.5 for i in range(3)])
    self.assertEqual(w[0][0], -STEPS * 0.5)
    # Row 0 is used once by every replica, and row 1 twice by the first.
    self.assertEqual([row[0] for row in table[:2]],
                     [-STEPS * 1.0, 2.0 - STEPS * 0.5])
    self.assertEqual(table[5], [10.0, 11.0])


if __name__ == "__main__":
  absltest.main()
