"""StepWatchdog: ends a program whose step waits for a silent worker."""

import os
import sys
import threading
import time
from typing import Any

import tensorflow as tf

from tf_cdops import errors
from tf_cdops.cluster import addresses
from tf_cdops.cluster import probing

EXIT_CODE = 3
_PROBE_SECONDS = 5.0


class StepWatchdog(tf.keras.callbacks.Callback):
  """Ends the process if a step takes too long, naming the silent workers.

  TensorFlow can't cancel a step that waits for a worker which is stopped or
  cut off: it would wait for ever. For those who would rather start again from
  a checkpoint. A Keras callback, and a context manager around a step:

      model.fit(x, y, callbacks=[StepWatchdog(cluster, limit=120)])

      with watchdog:
        step(batch)
  """

  def __init__(self, cluster: Any, limit: float):
    """Initializes.

    Args:
      cluster: the workers, as `multi_worker_strategy` takes them.
      limit: seconds that a step may take, the first one's tracing included.
    """
    super().__init__()
    if not limit > 0:
      raise errors.InputError(f"`limit` ({limit!r}) must be above 0 seconds.")
    self._tasks = addresses.resolve(cluster).others
    self._limit = limit
    self._timer: threading.Timer | None = None
    self._started = 0.0

  def __enter__(self) -> "StepWatchdog":
    self._started = time.monotonic()
    self._timer = threading.Timer(self._limit, self._bite)
    self._timer.daemon = True
    self._timer.start()
    return self

  def __exit__(self, *_: Any) -> None:
    if self._timer is not None:
      self._timer.cancel()
      self._timer = None

  def _bite(self) -> None:
    silent = probing.silent(self._tasks, _PROBE_SECONDS)
    blame = "; ".join(f"{task} {why}" for task, why in silent.items())
    print(f"tf_cdops: a step has not ended after {self._limit:g} s: "
          f"{blame or 'all workers answer, so it may only be slow'}. Ending "
          "the program.", file=sys.stderr, flush=True)
    os._exit(EXIT_CODE)

  def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
    self.__enter__()

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    self.__exit__()

  on_test_batch_begin = on_predict_batch_begin = on_train_batch_begin
  on_test_batch_end = on_predict_batch_end = on_train_batch_end

  def on_train_end(self, logs: Any = None) -> None:
    self.__exit__()
