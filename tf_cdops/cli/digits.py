"""Trains a Keras model on scikit-learn's digits over several devices."""

import contextlib
import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import tf_cdops

_BATCH = 128
_HELD_OUT = 360
_FOR_EVER = 1_000_000  # Epochs.


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What the training came to."""

  all_reduce_spec: str
  replicas: int
  accuracy: float
  step_seconds: float
  tensors: int
  bytes: int
  variables: int
  identical: bool


class RecordingAllReduce(tf_cdops.MultiWorkerAllReduce):
  """Remembers what the last traced step asked to have reduced."""

  sizes: tuple[int, ...] = ()

  def batch_reduce(self, reduce_op: Any, value_destination_pairs: Any,
                   options: Any = None) -> list[Any]:
    pairs = list(value_destination_pairs)
    # Keras gives a single replica's values as they are.
    firsts = [getattr(value, "values", (value,))[0] for value, _ in pairs]
    self.sizes = tuple(first.shape.num_elements() * first.dtype.size
                       for first in firsts)
    return super().batch_reduce(reduce_op, pairs, options)


class _Progress(tf.keras.callbacks.Callback):
  """Times each step, and draws a progress bar if somebody is watching."""

  def __init__(self, epochs: int):
    super().__init__()
    self.seconds: list[float] = []
    self._epochs = epochs
    self._bar: Any = None
    self._started = 0.0

  def on_train_begin(self, logs: Any = None) -> None:
    import rich.console
    import rich.progress
    self._bar = rich.progress.Progress(
        console=rich.console.Console(stderr=True), transient=True,
        disable=not sys.stderr.isatty())
    self._bar.start()
    self._task = self._bar.add_task("training", total=self._epochs)

  def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
    self._started = time.perf_counter()

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    self.seconds.append(time.perf_counter() - self._started)

  def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
    self._bar.update(self._task, advance=1,
                     description=f"training, loss {logs['loss']:.3f}")

  def on_train_end(self, logs: Any = None) -> None:
    self._bar.stop()


def train(spec: str, devices: int, workers: int, epochs: int,
          bandwidth: str | None = None) -> Outcome:
  """Trains on logical CPU devices; must come first in a process.

  Args:
    spec: how gradients travel.
    devices: devices of each worker; TensorFlow can be told so once a process.
    workers: processes of a `LocalCluster`; 0 for this process alone.
    epochs: passes over the training data.
    bandwidth: that of each worker's cable; None for this machine's loopback.

  Returns:
    What the training came to.
  """
  recorder = RecordingAllReduce(all_reduce_spec=spec)
  with _strategy(recorder, devices, workers, bandwidth) as strategy:
    return _train(strategy, recorder, spec, epochs)


def trace(spec: str, devices: int, workers: int, bandwidth: str | None,
          timeline: tf_cdops.Timeline) -> None:
  """Trains until a timeline has seen its steps; must come first in a process.

  Args:
    spec: as of `train`, and so the next three.
    devices: likewise.
    workers: likewise.
    bandwidth: likewise.
    timeline: what watches.
  """
  ops = functools.partial(tf_cdops.MultiWorkerAllReduce, all_reduce_spec=spec)
  with _strategy(ops, devices, workers, bandwidth) as strategy:
    (x, y), _ = _load()
    with strategy.scope():
      model = _model()
    stop = tf.keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda *_, **__: setattr(
            model, "stop_training", timeline.is_done))
    model.fit(x, y, batch_size=_batch_size(strategy), epochs=_FOR_EVER,
              verbose=0, callbacks=[timeline, stop])


@contextlib.contextmanager
def _strategy(ops: Any, devices: int, workers: int, bandwidth: str | None
              ) -> Iterator[tf.distribute.Strategy]:
  """Yields a strategy; `ops` may be what takes the links and makes them."""
  tf.get_logger().setLevel("ERROR")
  if workers:
    with tf_cdops.LocalCluster(workers, devices,
                               bandwidth=bandwidth) as cluster:
      yield tf_cdops.multi_worker_strategy(
          cluster, ops if isinstance(ops, RecordingAllReduce)
          else ops(network=cluster.link))
    return
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * devices)
  yield tf.distribute.MirroredStrategy(
      [f"CPU:{i}" for i in range(devices)],
      cross_device_ops=ops if isinstance(ops, RecordingAllReduce) else ops())


def _batch_size(strategy: tf.distribute.Strategy) -> int:
  # Keras averages the first batch over the replicas: it must divide evenly.
  replicas = strategy.num_replicas_in_sync
  return replicas * max(1, _BATCH // replicas)


def _train(strategy: tf.distribute.Strategy, recorder: RecordingAllReduce,
           spec: str, epochs: int) -> Outcome:
  tf.keras.utils.set_random_seed(1)
  (x, y), (held_out_x, held_out_y) = _load()
  with strategy.scope():
    model = _model()
  progress = _Progress(epochs)
  replicas, batch = strategy.num_replicas_in_sync, _batch_size(strategy)
  model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0,
            callbacks=[progress])
  _, accuracy = model.evaluate(held_out_x, held_out_y, batch_size=batch,
                               verbose=0)
  variables = [v.value for v in (*model.variables, *model.optimizer.variables)]
  return Outcome(
      all_reduce_spec=spec,
      replicas=replicas,
      accuracy=float(accuracy),
      step_seconds=statistics.median(progress.seconds),
      tensors=len(recorder.sizes),
      bytes=sum(recorder.sizes),
      variables=len(variables),
      identical=all(_identical(strategy, v) for v in variables))


def _load() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
  try:
    from sklearn import datasets
  except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "the demo's data come with scikit-learn; install it with "
        "`pip install 'tf-cdops[demo]'`.") from None
  digits = datasets.load_digits()
  order = np.random.default_rng(0).permutation(len(digits.target))
  x = (digits.images[order] / 16.0).astype("float32")[..., None]
  y = digits.target[order].astype("int64")
  return (x[_HELD_OUT:], y[_HELD_OUT:]), (x[:_HELD_OUT], y[:_HELD_OUT])


def _model() -> tf.keras.Model:
  layers = tf.keras.layers
  model = tf.keras.Sequential([
      layers.Input((8, 8, 1)),
      layers.Conv2D(32, 3, activation="relu"),
      layers.Conv2D(32, 3, activation="relu"),
      layers.Flatten(),
      layers.Dense(64, activation="relu"),
      layers.Dense(10),
  ])
  model.compile(
      optimizer=tf.keras.optimizers.Adam(2e-3),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      metrics=["accuracy"])
  return model


def _identical(strategy: tf.distribute.Strategy, variable: Any) -> bool:
  """Whether every replica's copy of a variable has the same bits."""
  copies = {np.asarray(v).tobytes()
            for v in strategy.experimental_local_results(variable)}
  return len(copies) == 1
