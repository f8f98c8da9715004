"""GradientAccumulation: as a batch of several times the size, and as Keras."""

import itertools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from tests import keras_models
from tests import keras_places
from tests import virtual_devices
import tensorflow as tf

import tf_cdops

_STEPS = 4
_OPTIMIZERS = {
    "sgd": tf.keras.optimizers.SGD,
    "momentum": lambda rate, **kwargs: tf.keras.optimizers.SGD(
        rate, momentum=0.5, **kwargs),
    "adam": tf.keras.optimizers.Adam,
}


def _accumulating(name, rate=0.25):
  return lambda: tf_cdops.keras.GradientAccumulation(
      _OPTIMIZERS[name](rate), _STEPS)


def _schedule():
  return tf.keras.optimizers.schedules.ExponentialDecay(0.5, 3, 0.5)


class GradientAccumulationTest(parameterized.TestCase):

  def assert_same(self, first, second, exactly=True):
    for one, other in zip(first, second, strict=True):
      if exactly:
        np.testing.assert_array_equal(one, other)
      else:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

  @parameterized.parameters(
      *itertools.product(((2, "ours"), (3, "ours"), (4, "ours")), _OPTIMIZERS),
      (None, "adam"), ((3, "TensorFlow's"), "adam"))
  def test_equals_a_larger_batch_and_keras_on_one_device(self, place, name):
    replicas = place[0] if place else 1
    exactly = replicas != 3
    rows = 4 * replicas
    # A zero that isn't quite one would have Adam take a whole step.
    numbers = (keras_models.whole_numbers if exactly
               else keras_models.real_numbers)
    x, y = numbers(3 * _STEPS * rows)
    strategy = keras_places.strategy_for(place)
    trained = keras_models.fit(
        keras_models.model(strategy, _accumulating(name)), x, y, rows)
    larger = keras_models.fit(
        keras_models.model(strategy, lambda: _OPTIMIZERS[name](0.25)), x, y,
        _STEPS * rows)
    self.assert_same(trained.get_weights(), larger.get_weights(), exactly)
    self.assertEqual(trained.optimizer.iterations.numpy(), 3)
    for copies in keras_models.full_state(trained):
      self.assert_same(copies, copies[:1] * len(copies))
    if replicas < 3:
      keras = keras_models.fit(
          keras_models.model(None, lambda: _OPTIMIZERS[name](
              0.25, gradient_accumulation_steps=_STEPS)), x, y, rows)
      self.assert_same(trained.get_weights(), keras.get_weights())
      self.assertEqual(int(keras.optimizer.iterations), 3)

  @parameterized.parameters(
      {"run_eagerly": True}, {"steps_per_execution": 3},
      {"jit_compile": "auto"})
  def test_other_ways_to_run_steps(self, **kwargs):
    x, y = keras_models.whole_numbers(64)
    strategy = keras_places.strategy_for((2, "ours"))
    models = [keras_models.fit(keras_models.model(
        strategy, _accumulating("adam"), **one), x, y, 8)
              for one in ({}, kwargs)]
    self.assert_same(*(made.get_weights() for made in models))

  def test_a_schedule_counts_steps_as_with_keras(self):
    x, y = keras_models.whole_numbers(64)
    strategy = keras_places.strategy_for((2, "ours"))
    trained = keras_models.fit(keras_models.model(
        strategy, _accumulating("sgd", _schedule())), x, y, 4)
    keras = keras_models.fit(keras_models.model(
        None, lambda: tf.keras.optimizers.SGD(
            _schedule(), gradient_accumulation_steps=_STEPS)), x, y, 4)
    self.assert_same(trained.get_weights(), keras.get_weights(), exactly=False)
    self.assertLess(float(trained.optimizer.learning_rate), 0.05)

  def test_decay_and_clipping_are_of_updates(self):
    x, y = keras_models.real_numbers(64)
    def optimizer(**kwargs):
      return tf.keras.optimizers.AdamW(0.1, weight_decay=0.1, clipnorm=0.1,
                                       **kwargs)
    trained = keras_models.fit(keras_models.model(
        None, lambda: tf_cdops.keras.GradientAccumulation(
            optimizer(), _STEPS)), x, y, 4)
    keras = keras_models.fit(keras_models.model(None, lambda: optimizer(
        gradient_accumulation_steps=_STEPS)), x, y, 4)
    self.assert_same(trained.get_weights(), keras.get_weights())

  def test_sparse_gradients(self):
    def train(strategy, optimizer, batch_size):
      rows = np.random.default_rng(0).integers(0, 8, (32, 2))
      with keras_models.scope(strategy):
        made = tf.keras.Sequential([
            tf.keras.layers.Input((2,), dtype="int32"),
            tf.keras.layers.Embedding(8, 3, embeddings_initializer="ones"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(1, kernel_initializer="ones",
                                  trainable=False)])
        made.compile(optimizer(), keras_models.linear_loss, jit_compile=False)
      keras_models.fit(made, rows, np.ones([32, 1]), batch_size)
      return made.get_weights()

    self.assert_same(
        train(keras_places.strategy_for((2, "ours")), _accumulating("adam"), 4),
        train(None, lambda: tf.keras.optimizers.Adam(
            0.25, gradient_accumulation_steps=_STEPS), 4))

  def test_gradients_travel_once_in_so_many_steps(self):
    sums = []

    def counted(values):
      with tf.control_dependencies(
          [tf.numpy_function(lambda: sums.append(1), [], [])]):
        return tf.add_n(values)

    strategy = tf.distribute.MirroredStrategy(
        virtual_devices.names(2),
        tf_cdops.ReductionToOneDevice(accumulation_fn=counted))
    x, y = keras_models.whole_numbers(32)
    plain = keras_models.model(strategy, lambda: tf.keras.optimizers.Adam())
    keras_models.fit(plain, x, y, 4)
    self.assertLen(sums, 8 * 2)  # Steps by variables.
    sums.clear()
    keras_models.fit(keras_models.model(strategy, _accumulating("adam")),
                     x, y, 4)
    self.assertLen(sums, 2 * 2)


class SavingTest(parameterized.TestCase):
  """In the middle of an accumulation, with sums that aren't exact."""

  def setUp(self):
    super().setUp()
    self.data = keras_models.real_numbers(6 * 10)
    self.strategy = keras_places.strategy_for((3, "ours"))
    self.folder = self.create_tempdir()

  def model(self):
    return keras_models.model(self.strategy, _accumulating("adam"), "mse")

  def fit(self, made, steps):
    x, y = self.data
    rows = np.r_[6 * steps.start:6 * steps.stop]
    return keras_models.fit(made, x[rows], y[rows], 6)

  def assert_goes_on(self, resume):
    """Six steps, then what a test does, then four: as ten in one go."""
    expected = self.fit(self.model(), slice(0, 10))
    begun = self.fit(self.model(), slice(0, 6))
    resumed = self.fit(resume(begun), slice(6, 10))
    tf.nest.map_structure(
        np.testing.assert_array_equal, keras_models.full_state(resumed),
        keras_models.full_state(expected))
    for one, other in zip(resumed.optimizer._accumulators,
                          expected.optimizer._accumulators, strict=True):
      self.assertNotEqual(np.count_nonzero(one.to_tensor()), 0)
      np.testing.assert_array_equal(one.to_tensor(), other.to_tensor())

  def test_model(self):
    def resume(begun):
      path = self.folder.create_file("model.keras").full_path
      begun.save(path)
      with self.strategy.scope():
        return tf.keras.models.load_model(path)
    self.assert_goes_on(resume)

  def test_weights(self):
    def resume(begun):
      path = self.folder.create_file("model.weights.h5").full_path
      begun.save_weights(path)
      made = self.model()
      with self.strategy.scope():
        made.optimizer.build(made.trainable_variables)
      made.load_weights(path)
      return made
    self.assert_goes_on(resume)

  @parameterized.parameters(False, True)
  def test_checkpoint(self, built_before):
    def resume(begun):
      with self.strategy.scope():
        path = tf.train.Checkpoint(
            model=begun, optimizer=begun.optimizer).save(
                self.folder.full_path + "/checkpoint")
      made = self.model()
      with self.strategy.scope():
        if built_before:
          made.optimizer.build(made.trainable_variables)
        tf.train.Checkpoint(model=made, optimizer=made.optimizer).restore(path)
      return made
    self.assert_goes_on(resume)

  def test_on_another_number_of_replicas(self):
    begun = self.fit(self.model(), slice(0, 6))
    path = self.folder.create_file("model.keras").full_path
    begun.save(path)
    loaded = tf.keras.models.load_model(path)  # On one device.
    for one, other in zip(loaded.optimizer._accumulators,
                          begun.optimizer._accumulators, strict=True):
      np.testing.assert_allclose(
          one.to_tensor(), tf.reduce_sum(other.to_tensor(), 0, keepdims=True),
          rtol=1e-5)

  def test_a_model_that_was_never_trained(self):
    path = self.folder.create_file("model.keras").full_path
    self.model().save(path)

  def test_schedule(self):
    optimizer = tf_cdops.keras.GradientAccumulation(
        tf.keras.optimizers.SGD(_schedule()), _STEPS)
    again = tf_cdops.keras.GradientAccumulation.from_config(
        optimizer.get_config())
    self.assertEqual(again.get_config(), optimizer.get_config())
    self.assertEqual(float(again.learning_rate), float(optimizer.learning_rate))


class ArgumentsTest(parameterized.TestCase):

  @parameterized.parameters(0, -1, 2.0, "4", None, True)
  def test_steps(self, steps):
    with self.assertRaisesRegex(ValueError, "`steps` .* must be a whole"):
      tf_cdops.keras.GradientAccumulation("sgd", steps)

  def test_not_with_keras_own(self):
    with self.assertRaisesRegex(
        ValueError, "`optimizer` has gradient_accumulation_steps=2.*`steps`"):
      tf_cdops.keras.GradientAccumulation(
          tf.keras.optimizers.SGD(gradient_accumulation_steps=2), 4)

  def test_is_a_keras_optimizer(self):
    self.assertIsInstance(tf_cdops.keras.GradientAccumulation("sgd", 2),
                          tf.keras.optimizers.Optimizer)


if __name__ == "__main__":
  absltest.main()
