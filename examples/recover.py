"""Trains over two workers, loses one in the middle of a step, and goes on.

    python examples/recover.py              # worker 1 is killed in epoch 2
    python examples/recover.py --lose_in_epoch=-1     # nothing happens

Both print the same weights: what was lost is trained again from the last
epoch's file.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import signal
import tempfile

from absl import app
from absl import flags
from absl import logging
import numpy as np
import tensorflow as tf

import tf_cdops

_LOSE = flags.DEFINE_integer(
    "lose_in_epoch", 2, "In which epoch a worker is killed; -1 for never.")
_EPOCHS = flags.DEFINE_integer("epochs", 4, "Epochs.", lower_bound=1)
_ATTEMPTS = 5
# What TensorFlow raises when a worker has gone, or has been replaced.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError,
         tf.errors.InternalError, tf.errors.CancelledError)


class _Killer(tf.keras.callbacks.Callback):
  """Plays the accident: kills worker 1 in the middle of an epoch, once."""

  def __init__(self, cluster):
    super().__init__()
    self._cluster = cluster
    self.done = False

  def on_train_batch_begin(self, batch, logs=None):
    if batch == 2 and not self.done:
      self.done = True
      print("worker 1 is killed")
      os.kill(self._cluster.pid(1), signal.SIGKILL)


def new_model():
  model = tf.keras.Sequential([
      tf.keras.layers.Input((3,)),
      tf.keras.layers.Dense(4, activation="relu"),
      tf.keras.layers.Dense(1)])
  model.compile(tf.keras.optimizers.Adam(0.05), "mse")
  return model


def train(cluster, file, x, y):
  """Trains epoch by epoch, each from the file of the one before."""
  killer = _Killer(cluster)
  epoch = attempts = 0
  while epoch < _EPOCHS.value:
    # What was on the workers is lost: let go of it, and make it anew, after
    # waiting, at most a minute, until all workers answer.
    strategy = model = None
    strategy = tf_cdops.multi_worker_strategy(cluster)
    with strategy.scope():
      tf.keras.utils.set_random_seed(0)
      model = (tf.keras.models.load_model(file) if file.exists()
               else new_model())
    try:
      while epoch < _EPOCHS.value:
        lose = epoch == _LOSE.value and not killer.done
        model.fit(x, y, batch_size=16, shuffle=False, verbose=0,
                  callbacks=[killer] if lose else [])
        fresh = file.with_name("fresh.keras")
        model.save(fresh)
        fresh.replace(file)  # A file is never half written.
        epoch += 1
    except _LOST as error:
      attempts += 1
      if attempts == _ATTEMPTS:
        raise
      print(f"epoch {epoch} failed: {type(error).__name__}")
      cluster.restart(1)  # On real machines, Slurm or Kubernetes does this.
  return model


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unknown arguments: {argv[1:]}")
  logging.set_verbosity(logging.ERROR)
  tf.get_logger().setLevel("ERROR")
  rng = np.random.default_rng(0)
  x = rng.normal(size=(96, 3)).astype("float32")
  y = x.sum(axis=1, keepdims=True)
  with (tf_cdops.LocalCluster(num_workers=2) as cluster,
        tempfile.TemporaryDirectory() as folder):
    model = train(cluster, pathlib.Path(folder) / "last.keras", x, y)
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    print("weights:", " ".join(f"{w:.6f}" for w in weights))


if __name__ == "__main__":
  app.run(main)
