"""Timeline: shows where the time of a few training steps goes."""

import atexit
import json
import os
import time
from typing import Any

from absl import logging
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import output_files
from tf_cdops.cluster import addresses
from tf_cdops.cluster import capturing
from tf_cdops.cluster import profiling
from tf_cdops.explaining import timeline
from tf_cdops.explaining.timeline import chrome
from tf_cdops.explaining.timeline import summary as summary_lib
from tf_cdops.explaining.timeline import trace as trace_lib
from tf_cdops.explaining.timeline import wording
from tf_cdops.keras import name_gradients

# The first steps trace functions and fill caches, and are like no others.
_WARM_UP = 3
_MOST_STEPS = 1000
# The one that profiles; a process can have but one.
_running: "Timeline | None" = None


class Timeline(tf.keras.callbacks.Callback):
  """Profiles a few steps and writes what each device and link did.

  As a callback, it profiles steps of `fit` from the fourth on:

      model.fit(x, y, callbacks=[tf_cdops.Timeline("trace.json")])

  As a context manager it profiles what runs inside, where each call of a
  tf.function that all-reduces is a step; call it a few times before:

      with tf_cdops.Timeline("trace.json", strategy=strategy):
        for _ in range(3):
          train_step()

  The file is in Chrome's trace format, which https://ui.perfetto.dev and
  chrome://tracing open: a lane for each device and each link between workers,
  and one for each bucket, with its algorithm, bytes and variables. `print`
  gives a summary, with what `explain` predicts beside what was measured.

  It uses TensorFlow's profiler, which slows steps down a little while it runs;
  outside its steps it does nothing. Each `fit` that has it writes the file
  anew. Workers of `multi_worker_strategy` are profiled through their own ports;
  each leaves a file in its machine's folder for temporary files. With
  `SpmdStrategy` all programs must have it, with as many steps, and the first
  writes the file. Of GPUs, on which it was never tried, it shows when the host
  gave them work.
  """

  def __init__(self, path: str | os.PathLike[str] | None = None,
               steps: int = 3, *, strategy: Any = None, verbose: bool = True):
    """Initializes.

    Args:
      path: the file. None for the one that `tf_cdops launch --trace` names,
        and to do nothing where that isn't used.
      steps: how many to show. With `steps_per_execution`, each is one call.
      strategy: for a context manager, what the steps run under; None for the
        one in whose scope it is entered.
      verbose: whether to print the summary when training ends.

    Raises:
      ValueError: for a wrong number, or a path that can't be written.
    """
    super().__init__()
    self._steps = errors.check_whole_number("steps", steps, 1, _MOST_STEPS)
    if not isinstance(path, (str, os.PathLike, type(None))):
      raise errors.InputError(
          f"`path` ({path!r}) must name a file, or be None.")
    if not isinstance(strategy, (tf.distribute.Strategy, type(None))):
      raise errors.InputError(
          f"`strategy` ({strategy!r}) must be a tf.distribute.Strategy, or "
          "None.")
    self._path = (os.environ.get(timeline.VARIABLE) if path is None
                  else os.fspath(path))
    self._strategy, self._verbose = strategy, verbose
    self._writes = _is_first_program()
    if self._path is not None and self._writes:
      output_files.check_writable(self._path, "path")
    self._done = self._path is None
    self._capture: capturing.Capture | None = None
    self._seen, self._begun, self._last_seconds = 0, 0.0, 0.0
    self._trace: trace_lib.Trace | None = None

  @property
  def trace(self) -> trace_lib.Trace | None:
    """What happened, once that is known."""
    return self._trace

  @property
  def is_done(self) -> bool:
    """Whether it has seen its steps, or has nothing to do."""
    return self._done

  @property
  def summary(self) -> summary_lib.Summary | None:
    """Its figures; None if no step was seen."""
    return (summary_lib.summarize(self._trace)
            if self._trace and self._trace.steps else None)

  def __str__(self) -> str:
    summary = self.summary
    if self._trace is None or summary is None:
      return f"{self._path}: no step was seen."
    return wording.report(self._trace, summary)

  def __enter__(self) -> "Timeline":
    self._begin_anew()
    if not self._done:
      strategy = self._strategy or tf.distribute.get_strategy()
      if profiling.workers_of(capturing.devices_of(strategy)):
        raise errors.InputError(
            "`Timeline` must be a callback of `fit` where a client drives "
            "workers: how long these are to be profiled must be known before.")
      self._start(strategy)
    return self

  def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
    if self._capture is not None:
      self._finish(together=kind is None)
      self._say()

  def on_train_begin(self, logs: Any = None) -> None:
    """Begins to count."""
    self._begin_anew()
    if not self._done:
      name_gradients.name_gradients(self.model)

  def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
    """Starts, if it is time."""
    if self._done:
      return
    if self._capture is None and self._seen >= _WARM_UP:
      self._start(self._strategy or self.model.distribute_strategy)
    if self._capture is not None:
      self._capture.begin_step(self._seen)
    self._begun = time.perf_counter()

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    """Stops, if it has seen enough."""
    if self._done:
      return
    self._last_seconds = time.perf_counter() - self._begun
    self._seen += 1
    if self._capture is not None:
      self._capture.end_step()
      if self._capture.has_enough:
        self._finish()

  def on_train_end(self, logs: Any = None) -> None:
    """Stops in any case, and prints the summary."""
    if self._capture is not None:
      self._finish()
    elif not self._done:
      logging.warning(
          "Timeline: training has ended after %d steps, and it profiles from "
          "step %d on; there is no trace.", self._seen, _WARM_UP + 1)
      return
    self._say()

  def _begin_anew(self) -> None:
    """Forgets an earlier training, and ends what that has left running.

    A step that raises, Ctrl-C too, calls no hook.
    """
    if _running is not None:
      _running._abandon()
    self._done, self._trace = self._path is None, None
    self._seen = 0

  def _start(self, strategy: Any) -> None:
    """Begins to profile; until that ends the file has no events."""
    global _running
    self._write(chrome.NOTHING)
    self._capture = capturing.Capture(strategy, self._steps,
                                      self._last_seconds)
    _running = self
    atexit.register(self._abandon)

  def _abandon(self) -> None:
    """Writes what there is of a training that has ended in the middle."""
    if self._capture is not None:
      self._finish(together=False)

  def _finish(self, together: bool = True) -> None:
    """Ends profiling, and writes the file.

    Args:
      together: whether all programs and workers do so, too.
    """
    global _running
    capture, self._capture, _running = self._capture, None, None
    assert capture is not None
    self._done = True
    atexit.unregister(self._abandon)
    try:
      self._trace = capture.finish(together)
      if self._trace is not None:
        self._write(chrome.events(self._trace))
    except (errors.ClusterError, OSError) as error:  # Training is worth more.
      logging.warning("Timeline: there is no trace: %s", error)

  def _write(self, content: dict[str, Any]) -> None:
    if self._writes:
      assert self._path is not None
      output_files.replace(self._path, json.dumps(content))

  def _say(self) -> None:
    if self._verbose and self._trace is not None and self._writes:
      print(f"{self}\n\nWritten to {self._path}; https://ui.perfetto.dev "
            "opens it.")


def _is_first_program() -> bool:
  """Whether this program is the one of several that writes."""
  try:
    cluster = addresses.from_tf_config(os.environ)
  except errors.Error:  # Its strategy says what is wrong.
    return True
  return cluster is None or cluster.own is None or (
      cluster.own == cluster.workers[0])

