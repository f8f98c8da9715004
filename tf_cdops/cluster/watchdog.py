"""StepWatchdog: ends a program whose step waits for a silent worker."""

import dataclasses
import os
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.cluster import addresses
from tf_cdops.cluster import keras_calls
from tf_cdops.cluster import probing

EXIT_CODE = 3
THREAD_NAME = "tf_cdops StepWatchdog"
_PROBE_SECONDS = 5.0
_LINGER_SECONDS = 1.0
# By whether there are workers.
_NOBODY_TO_BLAME = {True: "all workers answer, so it may only be slow",
                    False: "it may hang, or only be slow"}


class StepWatchdog(tf.keras.callbacks.Callback):
  """Ends the process if a step takes too long, naming the silent workers.

  TensorFlow can't cancel a step that waits for a worker which is stopped or
  cut off: it would wait for ever. For those who would rather start again from
  a checkpoint. A Keras callback, and a context manager around a step:

      model.fit(x, y, callbacks=[StepWatchdog(cluster, limit=120)])

      with watchdog:
        step(batch)

  A step that raises is no longer watched, in `fit` too. Blocks and calls may
  be nested, and several threads may share a watchdog; each is watched for
  itself. A loop of your own that calls the hooks must call the end of every
  batch, whatever the batch raises.
  """

  def __init__(self, cluster: Any, limit: float):
    """Initializes.

    Args:
      cluster: the workers, as `multi_worker_strategy` takes them; None to watch
        the steps of one machine.
      limit: seconds that a step may take, the first one's tracing included.
    """
    super().__init__()
    errors.check_duration("limit", limit)
    self._watcher = _Watcher(
        () if cluster is None else addresses.resolve(cluster).others, limit)
    weakref.finalize(self, self._watcher.ended.set)

  def __enter__(self) -> "StepWatchdog":
    self._watcher.enter()
    return self

  def __exit__(self, *_: Any) -> None:
    self._watcher.exit()

  def on_train_begin(self, logs: Any = None) -> None:
    self._watcher.begin_call(keras_calls.current())

  def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
    self._watcher.begin_step(keras_calls.current())

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    self._watcher.end_step(keras_calls.current())

  # Keras doesn't end the batch in which a dataset of unknown length ends.
  def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
    self._watcher.end_step(keras_calls.current())

  def on_train_end(self, logs: Any = None) -> None:
    self._watcher.end_step(keras_calls.current())

  on_test_begin = on_predict_begin = on_train_begin
  on_test_batch_begin = on_predict_batch_begin = on_train_batch_begin
  on_test_batch_end = on_predict_batch_end = on_train_batch_end
  on_test_end = on_predict_end = on_train_end


@dataclasses.dataclass(frozen=True)
class _Watch:
  """A step that must end by `deadline`; `call` is None for a `with` block."""

  thread: int
  deadline: float
  call: keras_calls.KerasCall | None = None


class _Watcher:
  """The steps that are watched, and the one thread that watches them.

  It knows nothing of the callback, which holds a model: the thread would keep
  that alive.
  """

  def __init__(self, tasks: Sequence[addresses.Task], limit: float):
    self._tasks = tasks
    self._limit = limit
    # A signal's handler may come back here while its thread has the lock.
    self._lock = threading.RLock()
    self._watches: list[_Watch] = []
    self.ended = threading.Event()  # Set when the watchdog is gone.
    self._thread: threading.Thread | None = None

  def enter(self) -> None:
    """Watches a `with` block of this thread."""
    with self._lock:
      self._watches.append(_Watch(threading.get_ident(), self._deadline()))
      self._start()

  def exit(self) -> None:
    """Ends this thread's innermost `with` block."""
    thread = threading.get_ident()
    with self._lock:
      for i in reversed(range(len(self._watches))):
        if (self._watches[i].thread, self._watches[i].call) == (thread, None):
          del self._watches[i]
          return

  def begin_call(self, call: keras_calls.KerasCall) -> None:
    """Forgets this thread's calls that have raised, as a new one begins."""
    self.end_step(call)
    with self._lock:
      self._watches = [
          watch for watch in self._watches
          if watch.call is None or watch.thread != call.thread
          or watch.call.place() is not keras_calls.Place.ENDED]

  def begin_step(self, call: keras_calls.KerasCall) -> None:
    """Watches a call's step, instead of its last if that is still there."""
    with self._lock:
      self.end_step(call)
      self._watches.append(_Watch(call.thread, self._deadline(), call))
      self._start()

  def end_step(self, call: keras_calls.KerasCall) -> None:
    """Ends a call's step; the calls around it have shown that they live."""
    with self._lock:
      deadline = self._deadline()
      self._watches = [
          dataclasses.replace(watch, deadline=deadline)
          if watch.call is not None and watch.thread == call.thread else watch
          for watch in self._watches if watch.call != call]

  def _deadline(self) -> float:
    return time.monotonic() + self._limit

  def _start(self) -> None:
    # A process that was forked has the object and not the thread.
    if self._thread is None or not self._thread.is_alive():
      self._thread = threading.Thread(target=self._run, daemon=True,
                                      name=THREAD_NAME)
      self._thread.start()

  def _run(self) -> None:
    """Waits for deadlines, and ends when there is none at two looks in turn.

    Steps never wake it: every new deadline is later than those it knows.
    """
    idle = False
    while True:
      with self._lock:
        watch = min(self._watches, default=None,
                    key=lambda watch: watch.deadline)
        if watch is None and idle:
          self._thread = None
          return
      idle = watch is None
      left = (_LINGER_SECONDS if watch is None
              else watch.deadline - time.monotonic())
      if left > 0:
        if self.ended.wait(min(left, _LINGER_SECONDS)):
          return
      elif watch is not None and self._is_overdue(watch):
        self._bite(watch)

  def _is_overdue(self, watch: _Watch) -> bool:
    """Whether a step is still going on; forgets or puts off one that isn't."""
    place = watch.call.place() if watch.call else keras_calls.Place.STEP
    with self._lock:
      if watch not in self._watches:
        return False
      if place is keras_calls.Place.STEP:
        return True
      self._watches.remove(watch)
      if place is keras_calls.Place.BETWEEN_STEPS:
        self._watches.append(
            dataclasses.replace(watch, deadline=self._deadline()))
      return False

  def _bite(self, watch: _Watch) -> None:
    silent = probing.silent(self._tasks, _PROBE_SECONDS)
    blame = "; ".join(f"{task} {why}" for task, why in silent.items())
    with self._lock:  # Nothing ends between the last look and the end.
      if not self._is_overdue(watch):
        return
      print(f"tf_cdops: a step has not ended after {self._limit:g} s: "
            f"{blame or _NOBODY_TO_BLAME[bool(self._tasks)]}. Ending "
            "the program.", file=sys.stderr, flush=True)
      os._exit(EXIT_CODE)
