"""Trains a small Keras model; how gradients travel is up to the flags.

    python examples/train_with_flags.py --all_reduce_spec=xring:64k:ps
    python examples/train_with_flags.py --cross_device_ops=one_device
    python examples/train_with_flags.py --help
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app
from absl import flags
import numpy as np
import tensorflow as tf

import tf_cdops

_DEVICES = flags.DEFINE_integer("devices", 4, "Logical CPU devices to use.",
                                lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 60, "Training steps.", lower_bound=1)
tf_cdops.flags.define_flags()


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unknown arguments: {argv[1:]}")
  try:
    ops = tf_cdops.flags.cross_device_ops_from_flags()
  except ValueError as error:
    raise app.UsageError(str(error)) from None
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * _DEVICES.value)
  tf.keras.utils.set_random_seed(0)

  # A plane through noisy points: the weights to find are known.
  rng = np.random.default_rng(0)
  batch = 16 * _DEVICES.value  # Keras wants as many for each replica.
  x = rng.normal(size=(batch * _STEPS.value, 3)).astype("float32")
  y = x @ np.array([[2.0], [-1.0], [0.5]], "float32") + 3.0

  strategy = tf.distribute.MirroredStrategy(
      [f"CPU:{i}" for i in range(_DEVICES.value)], cross_device_ops=ops)
  with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)),
                                 tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
  tf.get_logger().setLevel("ERROR")
  history = model.fit(x, y, batch_size=batch, epochs=1, verbose=0)

  print(f"cross-device ops: {ops!r}")
  print(f"replicas: {strategy.num_replicas_in_sync}")
  print(f"loss: {history.history['loss'][-1]:.4f}")
  kernel, bias = model.get_weights()
  print(f"weights: {np.round(kernel.ravel(), 2).tolist()}, "
        f"bias: {round(float(bias[0]), 2)}")


if __name__ == "__main__":
  app.run(main)
