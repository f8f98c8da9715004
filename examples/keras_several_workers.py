"""Trains a Keras model over several workers.

    python examples/keras_several_workers.py       # two, on this machine
    python examples/keras_several_workers.py --workers=host1:2222,host2:2222

The second form wants `python -m tf_cdops worker` on each of those machines.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contextlib

from absl import app
from absl import flags
from absl import logging
import numpy as np
import tensorflow as tf

import tf_cdops

_WORKERS = flags.DEFINE_list(
    "workers", [], "The workers' addresses; none to start two here.")
_SPEC = flags.DEFINE_string("all_reduce_spec", "auto", "How gradients travel.")


def train(cluster):
  """Fits a plane to points; the weights to find are known."""
  strategy = tf_cdops.multi_worker_strategy(
      cluster, tf_cdops.MultiWorkerAllReduce(all_reduce_spec=_SPEC.value))
  with strategy.scope():
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)),
                                 tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
  x = np.random.default_rng(0).normal(size=(1000, 3)).astype("float32")
  y = x @ np.array([[2.0], [-1.0], [0.5]], "float32") + 3.0
  model.fit(x, y, batch_size=32, epochs=2, verbose=0)
  print(f"replicas: {', '.join(strategy.extended.worker_devices)}")
  print(f"loss: {model.evaluate(x, y, batch_size=100, verbose=0):.4f}")
  print(f"weights: {np.round(model.get_weights()[0].ravel(), 2).tolist()}")


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unknown arguments: {argv[1:]}")
  logging.set_verbosity(logging.WARNING)
  tf.get_logger().setLevel("ERROR")
  with contextlib.ExitStack() as stack:
    train({"worker": _WORKERS.value} if _WORKERS.value else
          stack.enter_context(tf_cdops.LocalCluster(num_workers=2)))


if __name__ == "__main__":
  app.run(main)
