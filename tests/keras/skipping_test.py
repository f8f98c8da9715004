"""SkipNonFinite: nothing moves in a step in which a gradient isn't finite."""

import itertools
import warnings

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from tests import keras_models
from tests import keras_places
import tensorflow as tf

import tf_cdops
from tf_cdops.keras import replicas

_OPTIMIZERS = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.5),
    "momentum": lambda: tf.keras.optimizers.SGD(0.5, momentum=0.9),
    "adam": lambda: tf.keras.optimizers.Adam(0.5, weight_decay=0.1),
    "ema": lambda: tf.keras.optimizers.RMSprop(0.5, use_ema=True),
    "clipped": lambda: tf.keras.optimizers.Adagrad(0.5, global_clipnorm=1.0),
}


class _Loop:
  """A training loop of one's own, with gradients that a test chooses."""

  def __init__(self, place, optimizer, eager=False):
    self.strategy = keras_places.strategy_for(place)
    self.replicas = place[0] if place else 1
    with keras_models.scope(self.strategy):
      self.variables = [tf.Variable(np.ones([3, 2], "float32")),
                        tf.Variable(np.ones([2], "float32")),
                        tf.Variable(1.0)]
      self.optimizer = optimizer()
      self.optimizer.build(self.variables)
    self._step = self._run if eager else tf.function(self._run)

  def _replica_step(self, values):
    rows = tf.IndexedSlices(values[:2, tf.newaxis] * tf.ones([1, 2]),
                            tf.constant([0, 2]), tf.constant([3, 2]))
    self.optimizer.apply_gradients(zip([rows, values[:2], None],
                                       self.variables, strict=True))

  def _run(self, values):
    if self.strategy is None:
      self._replica_step(values[0])
      return

    def replica_step():
      replica = tf.distribute.get_replica_context().replica_id_in_sync_group
      self._replica_step(values[replica])

    self.strategy.run(replica_step)

  def step(self, bad=None, replica=None):
    """One step, with a bad value on a replica if one is given."""
    values = np.arange(1, 1 + 2 * self.replicas, dtype="float32")
    values = values.reshape(self.replicas, 2)
    if bad is not None:
      values[replica, 1] = bad
    with warnings.catch_warnings():  # Keras warns of one without gradient.
      warnings.simplefilter("ignore", UserWarning)
      self._step(tf.constant(values))

  def state(self):
    return keras_models.state(*self.variables, *self.optimizer.variables)


def _skipping(inner):
  return lambda: tf_cdops.keras.SkipNonFinite(inner())


class SkipNonFiniteTest(parameterized.TestCase):

  @parameterized.product(place=keras_places.PLACES, eager=(False, True))
  def test_nothing_moves_in_a_bad_step_and_all_in_a_good_one(self, place,
                                                             eager):
    loop = _Loop(place, _skipping(_OPTIMIZERS["adam"]), eager)
    plain = _Loop(place, _OPTIMIZERS["adam"])
    loop.step()
    before = loop.state()
    bads = itertools.cycle((np.nan, np.inf, -np.inf))
    for replica in range(loop.replicas):
      loop.step(next(bads), replica)
    tf.nest.map_structure(np.testing.assert_array_equal, loop.state(), before)
    self.assertEqual(loop.optimizer.skipped_steps.numpy(), loop.replicas)
    loop.step()
    plain.step()
    plain.step()
    tf.nest.map_structure(
        np.testing.assert_array_equal,
        keras_models.state(*loop.variables,
                           *loop.optimizer.inner_optimizer.variables),
        plain.state())
    self.assertEqual(loop.optimizer.iterations.numpy(), 2)

  @parameterized.parameters(*_OPTIMIZERS)
  def test_any_optimizer(self, name):
    loop = _Loop((2, "ours"), _skipping(_OPTIMIZERS[name]))
    plain = _Loop((2, "ours"), _OPTIMIZERS[name])
    loop.step(np.nan, 1)
    loop.step()
    loop.step(np.inf, 0)
    plain.step()
    np.testing.assert_array_equal(
        keras_models.state(loop.variables[0]),
        keras_models.state(plain.variables[0]))
    self.assertEqual(loop.optimizer.iterations.numpy(), 1)

  def test_fit_and_steps_per_execution(self):
    x, y = keras_models.whole_numbers(24)
    bad = x.copy()
    bad[[7, 14], 0] = np.nan, np.inf  # In the second and the fourth step.
    strategy = keras_places.strategy_for((2, "ours"))
    good = np.r_[0:4, 8:12, 16:24]
    expected = keras_models.fit(
        keras_models.model(strategy, _OPTIMIZERS["adam"]), x[good], y[good], 4)
    for kwargs in ({}, {"steps_per_execution": 3}, {"run_eagerly": True}):
      trained = keras_models.fit(keras_models.model(
          strategy, _skipping(_OPTIMIZERS["adam"]), **kwargs), bad, y, 4)
      np.testing.assert_array_equal(trained.get_weights()[0],
                                    expected.get_weights()[0])
      self.assertEqual(trained.optimizer.skipped_steps.numpy(), 2)

  def test_a_model_is_saved_with_it(self):
    x, y = keras_models.whole_numbers(8)
    made = keras_models.fit(keras_models.model(
        None, _skipping(_OPTIMIZERS["adam"]), "mse"), x, y, 4)
    path = self.create_tempdir().create_file("model.keras").full_path
    made.save(path)
    loaded = tf.keras.models.load_model(path)
    self.assertIsInstance(loaded.optimizer, tf_cdops.keras.SkipNonFinite)
    tf.nest.map_structure(
        np.testing.assert_array_equal, keras_models.full_state(loaded),
        keras_models.full_state(made))

  def test_learning_rate_is_the_inner_ones(self):
    optimizer = tf_cdops.keras.SkipNonFinite("sgd")
    optimizer.learning_rate = 0.125
    self.assertEqual(optimizer.inner_optimizer.learning_rate.numpy(), 0.125)
    self.assertEqual(optimizer.learning_rate.numpy(), 0.125)

  def test_for_all_replicas_at_once_is_an_error(self):
    strategy = keras_places.strategy_for((2, "ours"))
    with strategy.scope():
      variable = tf.Variable(1.0)
      optimizer = tf_cdops.keras.SkipNonFinite("sgd")
      with self.assertRaisesRegex(ValueError, "`apply` must be called on each "
                                  "replica.*strategy.run"):
        optimizer.apply([tf.constant(1.0)], [variable])


  @parameterized.parameters(
      lambda sgd: tf_cdops.keras.SkipNonFinite(sgd),
      lambda sgd: tf_cdops.keras.GradientAccumulation(sgd, 2),
      lambda sgd: tf_cdops.keras.LossScaleOptimizer(sgd))
  def test_made_outside_of_the_scope_is_an_error(self, wrap):
    # Else replicas count every step together, and some wrongly, in silence.
    strategy = keras_places.strategy_for((2, "ours"))
    sgd = tf.keras.optimizers.SGD()
    outside = wrap(sgd)
    with strategy.scope():
      for optimizer in (outside, wrap(sgd)):
        with self.assertRaisesRegex(
            ValueError, r"`optimizer` \(.*\) must be made in the scope of the "
            "strategy"):
          optimizer.build([tf.Variable(1.0)])
    outside.build([tf.Variable(1.0)])


class AllFiniteTest(parameterized.TestCase):

  @parameterized.parameters(
      ([], True), ([None, [1.0]], True), ([np.int32([1])], True),
      ([[1.0], [np.inf]], False), ([np.float64([3e38, 1e300])], True),
      ([np.float16([1e-8, -0.0])], True), ([np.zeros([0, 2])], True),
      ([np.complex64([1 + 1j])], True),
      ([np.complex64([complex(1.0, np.nan)])], False))
  def test_kinds_of_gradients(self, gradients, expected):
    self.assertEqual(replicas.all_finite(gradients).numpy(), expected)

  def test_sparse(self):
    for value, expected in ((1.0, True), (np.nan, False)):
      slices = tf.IndexedSlices(tf.constant([value]), tf.constant([0]))
      self.assertEqual(replicas.all_finite([slices]).numpy(), expected)


if __name__ == "__main__":
  absltest.main()
