"""What each worker trains in tests/fault_campaign.py; says how far it is."""

import json
import os
import pathlib
import sys

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops import cluster

EPOCHS, STEPS, _BATCH = 6, 8, 24


class Tell(tf.keras.callbacks.Callback):
  """Prints "at PHASE EPOCH", for the campaign to strike then."""

  def __init__(self, before_saving: bool):
    super().__init__()
    self._before_saving = before_saving
    self.epochs: list[int] = []

  def on_epoch_begin(self, epoch, logs=None):
    self.epochs.append(epoch)

  def on_train_batch_begin(self, batch, logs=None):
    if self._before_saving:
      print(f"at step {self.epochs[-1]}", flush=True)

  def on_epoch_end(self, epoch, logs=None):
    print(f"at {'save' if self._before_saving else 'between'} {epoch}",
          flush=True)


def main(folder: str) -> None:
  strategy = tf_cdops.SpmdStrategy()
  print("at joined 0", flush=True)
  rng = np.random.default_rng(0)
  x = rng.normal(size=(STEPS * _BATCH, 5)).astype("float32")
  y = rng.integers(0, 3, size=len(x))
  with strategy.scope():
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([
        tf.keras.layers.Input((5,)), tf.keras.layers.Dense(300, "relu"),
        tf.keras.layers.Dense(300, "relu"), tf.keras.layers.Dense(3)])
    model.compile(
        tf.keras.optimizers.Adam(0.01),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
  first = Tell(before_saving=True)
  model.fit(
      x, y, batch_size=_BATCH, epochs=EPOCHS, verbose=0, shuffle=False,
      callbacks=[first,
                 cluster.BackupAndRestore(pathlib.Path(folder) / "backup"),
                 Tell(before_saving=False)])
  rank = strategy.cluster_resolver.task_id
  (pathlib.Path(folder) / f"{rank}.json").write_text(json.dumps({
      "epochs": first.epochs, "restart": os.environ["TF_CDOPS_RESTART"],
      "weights": [weight.tobytes().hex() for weight in model.get_weights()]}))


if __name__ == "__main__":
  main(*sys.argv[1:])
