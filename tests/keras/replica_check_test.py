"""Tests of ReplicaCheck with Keras."""

import logging

from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops


def model_on(replicas, **compiled):
  """One with all that replicas have: slots, metrics, averages, random seeds."""
  strategy = tf.distribute.MirroredStrategy(
      virtual_devices.names(replicas),
      cross_device_ops=tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto"))
  with strategy.scope():
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([
        tf.keras.layers.Input((4,)), tf.keras.layers.Dense(5, name="first"),
        tf.keras.layers.BatchNormalization(), tf.keras.layers.Dropout(0.5),
        tf.keras.layers.Dense(1, name="last")])
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"],
                  **compiled)
  return model


def data(rows):
  rng = np.random.default_rng(0)
  return rng.normal(size=[rows, 4]), rng.normal(size=[rows, 1])


class Spoil(tf.keras.callbacks.Callback):
  """Changes one replica's copy of a variable after some step."""

  def __init__(self, step, replica, find):
    super().__init__()
    self._step, self._replica, self._find = step, replica, find
    self.steps = 0

  def on_train_batch_end(self, batch, logs=None):
    del batch, logs
    self.steps += 1
    if self.steps == self._step:
      copy = self._find(self.model).value.values[self._replica]
      copy.assign(copy.numpy() + np.float32(0.5))


class Counted(tf_cdops.ReplicaCheck):
  """Remembers after how many steps it compared."""

  def __init__(self, steps, **kwargs):
    super().__init__(**kwargs)
    self._seen, self.compared = steps, []

  def __call__(self, variables):
    self.compared.append(self._seen.steps)
    super().__call__(variables)


def first_kernel(model):
  return model.layers[0].kernel


def slot(model):
  return model.optimizer.variables[2]  # After iterations and learning rate.


class ReplicaCheckTest(parameterized.TestCase):

  @parameterized.parameters(1, 4)
  def test_compares_now_and_then(self, steps_per_execution):
    model = model_on(2, steps_per_execution=steps_per_execution)
    count = Spoil(-1, 0, first_kernel)
    check = Counted(count, every=8)
    with self.assertNoLogs("absl", logging.WARNING):
      model.fit(*data(80), batch_size=4, epochs=2, verbose=0,
                callbacks=[count, check])
    self.assertEqual(
        [calls * steps_per_execution for calls in check.compared],
        [8, 16, 24, 32, 40])

  @parameterized.product(
      find=((first_kernel, "sequential.*/first/kernel"),
            (slot, "first_kernel_momentum")), replica=(0, 2))
  def test_raises(self, find, replica):
    find, name = find
    model = model_on(3)
    with self.assertRaisesRegex(
        tf_cdops.errors.ReplicasDifferError,
        rf"^Replicas differ: \S*{name} \(shape \(4, 5\), float32\): replica "
        rf"{replica} of worker 0 \(\S+CPU:{replica}\) has \S+ \(0x\S+\) in "
        r"element \(0, 0\), where 2 of 3 replicas have"):
      model.fit(*data(24), batch_size=6, verbose=0, callbacks=[
          Spoil(2, replica, find), tf_cdops.ReplicaCheck(every=2)])

  def test_compares_at_the_end(self):
    model = model_on(2)
    with self.assertRaisesRegex(RuntimeError, "first/kernel"):
      model.fit(*data(24), batch_size=6, verbose=0, callbacks=[
          Spoil(4, 1, first_kernel), tf_cdops.ReplicaCheck()])

  def test_repairs(self):
    weights = []
    for step in (-1, 3):
      model = model_on(3)
      check = tf_cdops.ReplicaCheck(every=1, on_difference="repair")
      with self.assertLogs("absl", logging.WARNING) as logs:
        logging.getLogger("absl").warning("Else assertLogs fails.")
        model.fit(*data(24), batch_size=6, verbose=0, shuffle=False,
                  callbacks=[Spoil(step, 1, first_kernel), check])
      weights.append([copy.numpy() for copy in
                      first_kernel(model).value.values])
      self.assertLen(logs.output, 1 if step < 0 else 2)
    self.assertIn("ReplicaCheck has repaired this: Replicas differ: sequential",
                  logs.output[-1])
    for copy in weights[1]:
      np.testing.assert_array_equal(copy, weights[0][0])

  def test_as_a_function(self):
    model = model_on(2)
    check = tf_cdops.ReplicaCheck()
    check(model.trainable_variables)
    check(model.trainable_variables)
    model.layers[0].kernel.value.values[1].assign(np.ones([4, 5]))
    with self.assertRaisesRegex(RuntimeError, "first/kernel"):
      check(model.trainable_variables)
    check([model.layers[0].bias])  # Others are compared instead.

  def test_a_model_as_the_callback_does(self):
    model = model_on(3)
    model.fit(*data(24), batch_size=6, verbose=0)
    check = tf_cdops.ReplicaCheck()
    check(model)  # Its moving averages differ, as Keras makes them.
    slot(model).value.values[1].assign(np.ones([4, 5]))
    with self.assertRaisesRegex(RuntimeError, "kernel_momentum"):
      check(model)

  @parameterized.parameters(
      None, 3, "kernel", lambda: tf.Variable([1.0]),
      lambda: tf.keras.Variable([1.0]), lambda: tf.keras.optimizers.SGD())
  def test_refuses_what_is_no_list(self, variables):
    with self.assertRaisesRegex(
        ValueError,
        r"`variables(\[0\])?` \(.*\) must be a (Keras model|variable)"):
      tf_cdops.ReplicaCheck()(variables() if callable(variables)
                              else variables)

  def test_refuses_words(self):
    with tf.distribute.MirroredStrategy(virtual_devices.names(2)).scope():
      word = tf.Variable(["a"], name="word")
    with self.assertRaisesRegex(ValueError, r"`variables\[0\]` \(word\) must "
                                "have numbers, and is of string"):
      tf_cdops.ReplicaCheck()([word])

  def test_refuses_a_graph(self):
    with self.assertRaisesRegex(ValueError, "between calls of a tf.function"):
      tf.function(lambda: tf_cdops.ReplicaCheck()([]))()

  def test_without_a_strategy(self):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(*data(8), verbose=0,
              callbacks=[tf_cdops.ReplicaCheck(every=1),
                         tf_cdops.keras.NameGradients()])

  @parameterized.parameters(
      ({"every": 0}, r"`every` \(0\) must be a whole number of at least 1"),
      ({"every": 1.5}, r"`every` \(1.5\) must be"),
      ({"on_difference": "repare"},
       r"`on_difference` \('repare'\) must be 'raise' or 'repair'\. Did you "
       "mean 'repair'"),
      ({"on_difference": None}, r"`on_difference` \(None\) must be"))
  def test_refuses(self, kwargs, message):
    with self.assertRaisesRegex(ValueError, message):
      tf_cdops.ReplicaCheck(**kwargs)


if __name__ == "__main__":
  absltest.main()
