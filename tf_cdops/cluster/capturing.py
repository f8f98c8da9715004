"""Captures steps: profiles all hosts that have a part, and joins the profiles.

A client profiles itself and, through their ports, its workers. Programs that
run one a worker profile themselves, and tell the others.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import tf_compat
from tf_cdops.cluster import profiling
from tf_cdops.execution import emitted
from tf_cdops.explaining.timeline import aligning
from tf_cdops.explaining.timeline import assembling
from tf_cdops.explaining.timeline import predicting
from tf_cdops.explaining.timeline import reading as reading_lib
from tf_cdops.explaining.timeline import trace as trace_lib

# More steps than are wanted are profiled on workers, lest some be cut.
_SPARE_STEPS, _SPARE_SECONDS = 2, 1.0
_LOCAL = "/job:localhost/replica:0/task:0"
_Batches = Sequence[tuple[emitted.Batch, Sequence[str | None]]]


def devices_of(strategy: Any) -> tuple[str, ...]:
  """Returns a strategy's devices; TensorFlow's default one has none."""
  try:
    return tuple(strategy.extended.worker_devices)
  except RuntimeError:
    return ()


class Capture:
  """Steps that are being profiled."""

  def __init__(self, strategy: Any, steps: int, step_seconds: float):
    """Starts.

    Args:
      strategy: what the steps run under.
      steps: how many are wanted.
      step_seconds: what one takes, about: workers are profiled for a time.
    """
    self._strategy, self._steps = strategy, steps
    self._workers = profiling.workers_of(devices_of(strategy))
    self._own = profiling.OwnProfile()
    self._elsewhere: profiling.WorkersProfile | None = None
    if self._workers:
      try:
        self._elsewhere = profiling.WorkersProfile(
            self._workers,
            (steps + _SPARE_STEPS) * step_seconds + _SPARE_SECONDS)
      except BaseException:
        self._own.stop()
        raise
    self._mark: Any = None
    self._count = self._number = 0

  def begin_step(self, number: int) -> None:
    """Marks the beginning of a step."""
    self._number = number
    self._mark = tf.profiler.experimental.Trace(reading_lib.MARK,
                                                step_num=number)
    self._mark.__enter__()

  def end_step(self) -> None:
    """Marks its end."""
    if self._mark is not None:
      self._mark.__exit__(None, None, None)
      self._mark = None
      self._count += 1

  @property
  def has_enough(self) -> bool:
    """Whether as many steps are over as are wanted."""
    return (self._count >= self._steps if self._elsewhere is None
            else not self._elsewhere.runs)

  def finish(self, together: bool = True) -> trace_lib.Trace | None:
    """Ends it.

    Args:
      together: whether the other hosts are there to tell what they did.

    Returns:
      The trace; None if another program has it.
    """
    ops = tf_compat.cross_device_ops_of(self._strategy)
    batches: _Batches = getattr(ops, "emitted_batches", list)()
    devices = profiling.devices_in([batch.graph() for batch, _ in batches])
    spmd = hasattr(self._strategy, "tell_others")
    own = self._stopped(devices)
    clocks: list[trace_lib.Clock] = []
    readings = [own]
    if self._elsewhere is not None and together:
      readings, clocks = self._with_workers(own, devices)
    elif self._elsewhere is not None:
      self._elsewhere.abandon()
    elif spmd and together:
      readings, clocks = self._with_programs(own)
      if ops.rank:
        return None
    return _trace(readings, batches, self._steps, clocks,
                  devices_of(self._strategy), spmd)

  def _stopped(self, devices: dict[str, str]) -> reading_lib.Reading:
    """Ends this process's profile; a step in its middle isn't in it."""
    broken = None if self._mark is None else self._number
    self.end_step()
    local = devices_of(self._strategy)
    task = (_LOCAL if self._workers or not local
            else trace_lib.worker_of(local[0]))
    found = profiling.read(self._own.stop(), devices, task, self._own.began)
    return found if broken is None else found.without_step(broken)

  def _with_workers(self, own: reading_lib.Reading, devices: dict[str, str]
                    ) -> tuple[list[reading_lib.Reading],
                               list[trace_lib.Clock]]:
    """Returns what all hosts did, by this one's clock."""
    assert self._elsewhere is not None
    readings, clocks = [own], []
    for worker, data in zip(self._workers, self._elsewhere.files(),
                            strict=True):
      reading = profiling.read(data, devices, worker.task,
                               self._elsewhere.began).since(own.origin)
      clock = aligning.worker_with_client(worker.host, own, reading)
      readings.append(reading.moved(clock.moved))
      clocks.append(clock)
    return readings, clocks

  def _with_programs(self, own: reading_lib.Reading
                     ) -> tuple[list[reading_lib.Reading],
                                list[trace_lib.Clock]]:
    """Returns what all programs did, by the first one's clock."""
    tell = self._strategy.tell_others
    told = tell({"exchanges": profiling.exchange(tell),
                 "reading": own.to_json()})
    everyone = [reading_lib.Reading.from_json(one["reading"]) for one in told]
    readings, clocks = everyone[:1], []
    for number, reading in enumerate(everyone[1:], 1):
      clock = aligning.programs(
          f"worker {number}", told[0]["exchanges"], told[number]["exchanges"])
      readings.append(reading.since(everyone[0].origin).moved(clock.moved))
      clocks.append(clock)
    return readings, clocks


def capture_calls(strategy: Any, run: Callable[[], Any],
                  steps: int) -> trace_lib.Trace | None:
  """Captures calls of a function that has run before, each as a step."""
  started = time.perf_counter()
  run()
  capture = Capture(strategy, steps, time.perf_counter() - started)
  number = 0
  try:
    while not capture.has_enough:
      capture.begin_step(number)
      run()
      capture.end_step()
      number += 1
  except BaseException:
    capture.finish(together=False)
    raise
  return capture.finish()


def _trace(readings: Sequence[reading_lib.Reading], batches: _Batches,
           steps: int, clocks: Sequence[trace_lib.Clock],
           local_devices: Sequence[str], spmd: bool) -> trace_lib.Trace:
  """Joins what was seen with what is known of the batches."""
  buckets, savings, most = [], [], 0
  for batch, names in batches:
    predicted = predicting.Batch(batch.plan, batch.sizes, batch.topology,
                                 batch.network, spmd)
    buckets += predicted.buckets(batch.scope, names)
    if predicted.num_bytes > most:
      most, savings = predicted.num_bytes, predicted.savings()
  # The largest topology has all replicas, those of other programs too.
  replicas = max((batch.topology.devices for batch, _ in batches), key=len,
                 default=tuple(local_devices))
  return assembling.assemble(readings, buckets, replicas, steps, clocks,
                             savings)
