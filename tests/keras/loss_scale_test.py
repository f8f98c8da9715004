"""LossScaleOptimizer: weights stay finite, whichever replica overflows."""

import itertools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from tests import keras_models
from tests import keras_places
import tensorflow as tf

import tf_cdops


class LossScaleOptimizerTest(parameterized.TestCase):

  @parameterized.product(place=keras_places.PLACES)
  def test_an_overflow_on_any_replica_halves_the_scale(self, place):
    strategy = keras_places.strategy_for(place)
    replicas = place[0] if place else 1
    made = keras_models.mixed_model(
        strategy, lambda: tf_cdops.keras.LossScaleOptimizer(
            tf.keras.optimizers.SGD(0.5, momentum=0.5), 2.0 ** 10))
    optimizer = made.optimizer
    self.assertIsInstance(optimizer, tf_cdops.keras.LossScaleOptimizer)
    one = np.ones([replicas, 2], "float32")
    keras_models.fit(made, one, one[:, :1], replicas)
    before = keras_models.state(*optimizer.inner_optimizer.variables,
                                *made.variables)
    for replica in range(replicas):
      y = one[:, :1].copy()
      y[replica] = 6e4  # Times the scale, it is beyond float16.
      keras_models.fit(made, one, y, replicas)
      self.assertEqual(keras_models.state(optimizer.dynamic_scale),
                       [[2.0 ** (9 - replica)] * replicas])
    tf.nest.map_structure(
        np.testing.assert_array_equal, before, keras_models.state(
            *optimizer.inner_optimizer.variables, *made.variables))
    keras_models.fit(made, one, one[:, :1], replicas)
    # 0.5, and then 0.5 and half of what was before.
    np.testing.assert_allclose(made.get_weights()[0], [[-0.25], [-0.25]],
                               rtol=0.0 if replicas != 3 else 0.01)

  @parameterized.parameters(2, 3, 4)
  def test_two_hundred_steps_from_a_scale_that_overflows(self, replicas):
    scales = []
    made = keras_models.fit_mixed(
        keras_places.strategy_for((replicas, "ours")), replicas,
        lambda made: [tf.keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda *_, **__: scales.append(
                float(made.optimizer.dynamic_scale.numpy())))])
    copies = keras_models.full_state(made)
    self.assertLen(scales, 200)
    self.assertLess(min(scales), 2.0 ** 16)
    tf.nest.map_structure(
        lambda copy: self.assertTrue(np.isfinite(copy).all()), copies)
    for values in copies:
      for value in values[1:]:
        np.testing.assert_array_equal(value, values[0])
    grown = sum(b > a for a, b in itertools.pairwise(scales))
    self.assertGreater(grown, 3)
    self.assertGreater(made.optimizer.iterations.numpy(), 100)

  def test_around_gradient_accumulation(self):
    strategy = keras_places.strategy_for((2, "ours"))
    made = keras_models.mixed_model(
        strategy, lambda: tf_cdops.keras.LossScaleOptimizer(
            tf_cdops.keras.GradientAccumulation(
                tf.keras.optimizers.SGD(1.0), 2), 2.0 ** 10))
    one = np.ones([2, 2], "float32")
    for factors in ((1, 1), (1, 6e4), (3, 1)):
      keras_models.fit(made, one, one[:, :1] * np.array([factors]).T, 2)
    # The mean of the first step and of the third, of 1 and of 2.
    np.testing.assert_array_equal(made.get_weights()[0], [[-0.5], [-0.5]])
    self.assertEqual(made.optimizer.dynamic_scale.numpy(), 2.0 ** 9)

  def test_a_model_is_saved_with_it(self):
    x, y = keras_models.whole_numbers(8)
    made = keras_models.fit(keras_models.model(
        None, lambda: tf_cdops.keras.LossScaleOptimizer(
            "adam", initial_scale=64.0, dynamic_growth_steps=3), "mse"),
        x, y, 4)
    path = self.create_tempdir().create_file("model.keras").full_path
    made.save(path)
    loaded = tf.keras.models.load_model(path)
    self.assertIsInstance(loaded.optimizer, tf_cdops.keras.LossScaleOptimizer)
    self.assertIsInstance(loaded.optimizer,
                          tf.keras.optimizers.LossScaleOptimizer)
    self.assertEqual(loaded.optimizer.dynamic_growth_steps, 3)
    tf.nest.map_structure(
        np.testing.assert_array_equal, keras_models.full_state(loaded),
        keras_models.full_state(made))


if __name__ == "__main__":
  absltest.main()
