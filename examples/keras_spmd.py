"""Trains a Keras model over several workers, each of which runs this program.

    python -m tf_cdops launch --workers=2 examples/keras_spmd.py

On several machines, run it on each, with the cluster in TF_CONFIG, or so:

    python -m tf_cdops launch --cluster=host1:2222,host2:2222 --task=0 \
        examples/keras_spmd.py
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app
from absl import flags
from absl import logging
import numpy as np
import tensorflow as tf

import tf_cdops

_SPEC = flags.DEFINE_string("all_reduce_spec", "auto", "How gradients travel.")
_WIRE = flags.DEFINE_string("wire", None, "How messages are made smaller.")
_BACKUP = flags.DEFINE_string(
    "backup", None, "Where to save after each epoch, to go on from.")


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unknown arguments: {argv[1:]}")
  logging.set_verbosity(logging.WARNING)
  tf.get_logger().setLevel("ERROR")
  strategy = tf_cdops.SpmdStrategy(all_reduce_spec=_SPEC.value,
                                   wire=_WIRE.value)
  with strategy.scope():
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)),
                                 tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
  # The same data in every program: each works on its share of each batch.
  x = np.random.default_rng(0).normal(size=(1000, 3)).astype("float32")
  y = x @ np.array([[2.0], [-1.0], [0.5]], "float32") + 3.0
  callbacks = [tf_cdops.Timeline()]  # For `launch --trace=trace.json`.
  if _BACKUP.value:
    callbacks.append(tf_cdops.cluster.BackupAndRestore(_BACKUP.value))
  model.fit(x, y, batch_size=40, epochs=2, verbose=0, callbacks=callbacks)
  loss = model.evaluate(x, y, batch_size=100, verbose=0)
  # All programs have all of it; one says so.
  if strategy.cluster_resolver.task_id in (0, None):
    print(f"replicas: {strategy.num_replicas_in_sync}")
    print(f"loss: {loss:.4f}")
    print(f"weights: {np.round(model.get_weights()[0].ravel(), 2).tolist()}")


if __name__ == "__main__":
  app.run(main)
