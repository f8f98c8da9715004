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
  """Passes on what it is given, on one replica after a while.

  If it is stateful, TensorFlow has the replicas pass it one after another.
  """

  late: int | None = None

  def __init__(self, stateful: bool):
    super().__init__()
    self._is_stateful = stateful

  def call(self, x: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    if context is None:  # Keras only asks for the shape.
      return tf.identity(x)
    slept = tf.numpy_function(
        _sleep, [context.replica_id_in_sync_group, x[0, 0]], tf.float32,
        stateful=self._is_stateful)
    return x + tf.ensure_shape(slept, [])


def _sleep(replica: np.ndarray, value: np.ndarray) -> np.ndarray:
  """Returns a zero; depends on the value, lest it be run once and for all."""
  if Sleeper.late == replica:
    time.sleep(_SECONDS)
  return value * np.float32(0)


def _model(strategy: tf.distribute.Strategy, stateful: bool) -> tf.keras.Model:
  with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((64,)), Sleeper(stateful),
        tf.keras.layers.Dense(64), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
  return model


def main(folder: str, times: int) -> int:
  strategy = tf.distribute.MirroredStrategy(
      virtual_devices.names(_REPLICAS),
      tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto"))
  models = [_model(strategy, stateful) for stateful in (False, True)]
  x = np.ones((8 * 8, 64), "float32")
  blamed: collections.Counter[bool] = collections.Counter()
  for number in range(times):
    Sleeper.late = number % _REPLICAS
    timeline = tf_cdops.Timeline(pathlib.Path(folder) / "late.json",
                                 verbose=False)
    models[number // _REPLICAS % 2].fit(
        x, x[:, :1], batch_size=8, verbose=0, callbacks=[timeline])
    late = timeline.summary.late
    advice = str(timeline).split("\n\n")[-1]
    right = late.replica == Sleeper.late and (
        advice.startswith(f"Replica {Sleeper.late} "))
    blamed[right] += 1
    print(f"{'right' if right else 'WRONG'}: replica {Sleeper.late} sleeps, "
          f"and replica {late.replica} is late by {late.by * 1e3:.1f} ms, with "
          f"{late.extra * 1e3:.1f} ms more to do: {advice}", flush=True)
  print(f"late: {blamed[True]} of {times} right")
  return int(blamed[False] > 0)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1], int(sys.argv[2])))
