"""Trains with one late replica after another, and looks whom timelines blame.

    python -m tests.timeline_late FOLDER TIMES
"""

import collections
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests import virtual_devices
import numpy as np
import tensorflow as tf

import tf_cdops

_REPLICAS = 4
_SECONDS = 0.05


class Sleeper(tf.keras.layers.Layer):
  """Passes on what it is given, on one replica after a while."""

  late: int | None = None

  def call(self, x: tf.Tensor) -> tf.Tensor:
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group

    def sleep(value: np.ndarray) -> np.ndarray:
      if Sleeper.late == replica:
        time.sleep(_SECONDS)
      return value

    slept = tf.numpy_function(sleep, [tf.shape(x)[0]], tf.int32)
    with tf.control_dependencies([slept]):
      return tf.identity(x)


def main(folder: str, times: int) -> int:
  strategy = tf.distribute.MirroredStrategy(
      virtual_devices.names(_REPLICAS),
      tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto"))
  with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((64,)), Sleeper(), tf.keras.layers.Dense(64),
        tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
  x = np.ones((8 * 8, 64), "float32")
  blamed: collections.Counter[bool] = collections.Counter()
  for number in range(times):
    Sleeper.late = number % _REPLICAS
    timeline = tf_cdops.Timeline(pathlib.Path(folder) / "late.json",
                                 verbose=False)
    model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[timeline])
    late = timeline.summary.late
    advice = str(timeline).split("\n\n")[-1]
    right = late.replica == Sleeper.late and (
        advice.startswith(f"Replica {Sleeper.late} "))
    blamed[right] += 1
    print(f"{'right' if right else 'WRONG'}: replica {Sleeper.late} sleeps, "
          f"and replica {late.replica} is late by {late.by * 1e3:.1f} ms: "
          f"{advice}")
  print(f"late: {blamed[True]} of {times} right")
  return int(blamed[False] > 0)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1], int(sys.argv[2])))
