"""The models that tests of SpmdStrategy train, with it and without."""

import os
import pathlib
import signal

import numpy as np
import tensorflow as tf


def data(rows=104):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(rows, 5)).astype("float32")
  return x, rng.integers(0, 3, size=rows)


def model(strategy, **compiled):
  """Returns a small one; the same wherever it is made."""
  with strategy.scope():
    tf.keras.utils.set_random_seed(0)
    made = tf.keras.Sequential([
        tf.keras.layers.Input((5,)), tf.keras.layers.Dense(8, "relu"),
        tf.keras.layers.Dense(3)])
    made.compile(
        tf.keras.optimizers.Adam(0.05),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"], **compiled)
  return made


def train(strategy, **compiled):
  """Fits, evaluates and predicts; returns all numbers.

  104 rows in batches of 24: the last has 8, which 1, 2 and 4 replicas divide
  evenly; of 3 the last has fewer.
  """
  x, y = data()
  made = model(strategy, **compiled)
  history = made.fit(x, y, batch_size=24, epochs=2, verbose=0, shuffle=False,
                     validation_data=(x[:24], y[:24]))
  return {"history": history.history,
          "evaluated": made.evaluate(x, y, batch_size=24, verbose=0),
          "predicted": made.predict(x, batch_size=24, verbose=0).tolist(),
          "weights": [weight.tolist() for weight in made.get_weights()]}


def train_otherwise(strategy, folder: pathlib.Path):
  """The rest of what Keras has; returns numbers by name."""
  x, y = data(96)
  folder.mkdir(parents=True, exist_ok=True)
  results = {}
  made = model(strategy, steps_per_execution=2)
  made.fit(x, y, batch_size=24, verbose=0, shuffle=False,
           class_weight={0: 1.0, 1: 2.0, 2: 0.5})
  made.fit(x, y, batch_size=24, verbose=0, shuffle=False,
           sample_weight=np.linspace(0, 2, len(x)))
  results["weighted"] = [w.tolist() for w in made.get_weights()]
  made.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(24), verbose=0,
           shuffle=False)
  results["dataset"] = [w.tolist() for w in made.get_weights()]
  results["on batch"] = float(made.train_on_batch(x[:24], y[:24])[0])
  shuffled = model(strategy)
  shuffled.fit(x, y, batch_size=len(x), epochs=2, verbose=0)
  results["shuffled"] = [w.tolist() for w in shuffled.get_weights()]
  checkpoints = tf.keras.callbacks.ModelCheckpoint(folder / "best.keras")
  backup = tf.keras.callbacks.BackupAndRestore(folder / "backup")
  made.fit(x, y, batch_size=24, verbose=0, callbacks=[checkpoints, backup],
           shuffle=False)
  made.save(folder / "model.keras")
  for name in ("best.keras", "model.keras"):
    with strategy.scope():
      loaded = tf.keras.models.load_model(folder / name)
    np.testing.assert_array_equal(
        loaded.predict(x, batch_size=24, verbose=0),
        made.predict(x, batch_size=24, verbose=0))
  results["saved"] = [w.tolist() for w in loaded.get_weights()]
  return results


def train_and_die(strategy, folder, die_after=None):
  """Trains, and is killed after so many epochs, if at all."""
  from tf_cdops import cluster  # pylint: disable=g-import-not-at-top
  x, y = data(96)
  made = model(strategy)
  epochs = []

  class Die(tf.keras.callbacks.Callback):

    def on_epoch_begin(self, epoch, logs=None):
      epochs.append(epoch)

    def on_train_batch_end(self, batch, logs=None):
      if die_after is not None and epochs[-1] == die_after and batch == 2:
        os.kill(os.getpid(), signal.SIGKILL)

  made.fit(x, y, batch_size=24, epochs=4, verbose=0, shuffle=False,
           callbacks=[Die(), cluster.BackupAndRestore(folder)])
  return {"epochs": epochs, "weights": [w.tolist() for w in made.get_weights()]}
