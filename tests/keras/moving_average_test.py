"""ExponentialMovingAverage: as Keras on one device."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from tests import keras_models
from tests import keras_places
import tensorflow as tf

import tf_cdops


def _sgd(**kwargs):
  return tf.keras.optimizers.SGD(
      0.5, momentum=0.5, use_ema=True, ema_momentum=0.75,
      ema_overwrite_frequency=3, **kwargs)


def _averaging():
  return tf_cdops.keras.ExponentialMovingAverage(_sgd())


class ExponentialMovingAverageTest(parameterized.TestCase):

  def weights_by_step(self, strategy, optimizer, **compiled):
    seen = []
    made = keras_models.model(strategy, optimizer, **compiled)
    made.layers[0].kernel.constraint = tf.keras.constraints.UnitNorm()
    x, y = keras_models.whole_numbers(12 * 8)
    keras_models.fit(made, x, y, 12, callbacks=[
        tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: (
            seen.append(made.get_weights())))])
    return [*seen, made.get_weights()]

  @parameterized.product(place=(None, (2, "ours"), (3, "TensorFlow's")))
  def test_as_keras_on_one_device(self, place):
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        self.weights_by_step(keras_places.strategy_for(place), _averaging),
        self.weights_by_step(None, _sgd))

  def test_eagerly(self):
    strategy = keras_places.strategy_for((2, "ours"))
    tf.nest.map_structure(
        np.testing.assert_array_equal,
        self.weights_by_step(strategy, _averaging, run_eagerly=True),
        self.weights_by_step(strategy, _averaging))

  def test_a_step_that_is_skipped_overwrites_nothing(self):
    def optimizer():
      return tf_cdops.keras.ExponentialMovingAverage(
          tf_cdops.keras.SkipNonFinite(_sgd()))
    strategy = keras_places.strategy_for((2, "ours"))
    made = keras_models.model(strategy, optimizer)
    x, y = keras_models.whole_numbers(4)
    made.train_on_batch(x * np.nan, y)
    np.testing.assert_array_equal(made.get_weights()[0], np.ones([4, 3]))

  def test_with_gradient_accumulation(self):
    x, y = keras_models.whole_numbers(48)
    strategy = keras_places.strategy_for((2, "ours"))
    accumulated = keras_models.fit(keras_models.model(
        strategy, lambda: tf_cdops.keras.GradientAccumulation(
            _averaging(), 2)), x, y, 4)
    larger = keras_models.fit(
        keras_models.model(strategy, _averaging), x, y, 8)
    tf.nest.map_structure(np.testing.assert_array_equal,
                          accumulated.get_weights(), larger.get_weights())

  def test_a_model_is_saved_with_it(self):
    x, y = keras_models.whole_numbers(8)
    made = keras_models.fit(keras_models.model(None, _averaging, "mse"),
                            x, y, 4)
    path = self.create_tempdir().create_file("model.keras").full_path
    made.save(path)
    loaded = tf.keras.models.load_model(path)
    self.assertEqual(loaded.optimizer.overwrite_frequency, 3)
    tf.nest.map_structure(
        np.testing.assert_array_equal, keras_models.full_state(loaded),
        keras_models.full_state(made))

  def test_only_where_there_is_something_to_mend(self):
    with self.assertRaisesRegex(
        ValueError, "`optimizer` .* must have use_ema=True and an ema_over"):
      tf_cdops.keras.ExponentialMovingAverage(
          tf.keras.optimizers.SGD(use_ema=True))


if __name__ == "__main__":
  absltest.main()
