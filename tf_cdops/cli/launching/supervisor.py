"""Runs the programs of all workers once, up to the end of the last."""

import dataclasses
import time
from collections.abc import Sequence

from tf_cdops.cli.launching import descendants
from tf_cdops.cli.launching import ending
from tf_cdops.cli.launching import events as events_lib
from tf_cdops.cli.launching import output as output_lib
from tf_cdops.cli.launching import places
from tf_cdops.cli.launching import program as program_lib
from tf_cdops.cli.launching import verdict as verdict_lib

_TICK_SECONDS = 5.0
# How long to look for others' ends when one has failed: who fails first, and
# who is seen to, can differ.
_WINDOW_SECONDS = 1.0
# TensorFlow ends programs that wait for one that is stopped, but not those that
# wait for it to begin. All together may be stopped for as long as anyone likes.
_STOPPED_SECONDS = 40.0


@dataclasses.dataclass(frozen=True)
class Task:
  """What each worker runs.

  Attributes:
    command: the program and its arguments.
    environment: its variables, but for TF_CONFIG.
    grace: seconds that the others have when the first has ended well.
  """

  command: Sequence[str]
  environment: dict[str, str]
  grace: float


def run(task: Task, assignments: Sequence[places.Assignment],
        output: output_lib.Output, events: events_lib.Events
        ) -> verdict_lib.Verdict:
  """Starts the programs, waits, and ends them all; returns how it went."""
  programs: list[program_lib.Program] = []
  pumps = output.start()
  outcome = verdict_lib.Verdict(1)  # Unless it comes to another.
  try:
    for number, each in enumerate(assignments):
      programs.append(program_lib.Program(
          each.name, task.command,
          task.environment | {"TF_CONFIG": each.tf_config}, each.start_there,
          events))
      pumps.add(each.name, number, *programs[-1].pipes)
    pumps.start()
    outcome = _Watch(programs, output, events, task.grace).wait()
    if outcome.message:
      output.say(outcome.message)
  finally:
    ending.end(programs, outcome.signals, events)
    pumps.finish(keep_on=lambda: not ending.hurried(events))
  return outcome


class _Watch:
  """Waits for the programs to end, or for a reason to end them."""

  def __init__(self, programs: Sequence[program_lib.Program],
               output: output_lib.Output, events: events_lib.Events,
               grace: float):
    self._programs, self._output, self._events = programs, output, events
    self._grace = grace
    self._ended: list[events_lib.Ended] = []
    self._first_end: float | None = None  # When it was, if there was one.
    self._warned: set[str] = set()  # What was said, or of whom.
    self._stopped_since: dict[str, float] = {}

  def wait(self) -> verdict_lib.Verdict:
    while self._running():
      event = self._next(self._patience())
      if isinstance(event, events_lib.Told | events_lib.OutputLost):
        return verdict_lib.told(event)
      if event is None:
        self._tick()
        if gone := self._stopped_long():
          return verdict_lib.stopped_long(gone, _STOPPED_SECONDS)
        if self._time_left() <= 0:
          return verdict_lib.left_early(self._ended, self._running(),
                                        self._grace)
        continue
      self._ended.append(event)
      if event.code != 0:
        return self._failed()
      self._first_end = self._first_end or time.monotonic()
    return verdict_lib.all_is_well()

  def _failed(self) -> verdict_lib.Verdict:
    deadline = time.monotonic() + _WINDOW_SECONDS
    stopped = self._stopped()
    while self._running() and (
        event := self._next(deadline - time.monotonic())):
      if not isinstance(event, events_lib.Ended):
        return verdict_lib.told(event)
      self._ended.append(event)
    return verdict_lib.failed(self._ended, self._running(), stopped)

  def _next(self, timeout: float) -> events_lib.Event | None:
    """Returns the next event, but for ends of programs of an earlier run."""
    deadline = time.monotonic() + timeout
    pids = {each.pid for each in self._programs}
    for event in self._events.until(deadline):
      if not isinstance(event, events_lib.Ended) or event.pid in pids:
        return event
    return None

  def _running(self) -> list[str]:
    ended = {event.name for event in self._ended}
    return [each.name for each in self._programs if each.name not in ended]

  def _stopped(self) -> list[str]:
    return [each.name for each in self._programs if each.is_stopped]

  def _stopped_long(self) -> list[str]:
    """Returns who is stopped for too long, while others run."""
    stopped, now = self._stopped(), time.monotonic()
    if len(stopped) == len(self._running()):
      stopped = []
    self._stopped_since = {name: self._stopped_since.get(name, now)
                           for name in stopped}
    return [name for name, since in self._stopped_since.items()
            if now - since >= _STOPPED_SECONDS]

  def _time_left(self) -> float:
    if self._first_end is None:
      return float("inf")
    return self._first_end + self._grace - time.monotonic()

  def _patience(self) -> float:
    return min(_TICK_SECONDS, self._time_left())

  def _tick(self) -> None:
    """Says what is odd, once, and lets dead orphans go."""
    descendants.reap_orphans(but=[each.pid for each in self._programs])
    stopped = self._stopped()
    for each in self._programs:
      if each.name in stopped and each.name not in self._warned:
        self._output.say(f"{each.name} is stopped (SIGSTOP); `kill -CONT "
                         f"{each.pid}` lets it go on.")
    self._warned = set(stopped) | self._warned & {"grace"}
    if self._first_end is not None and "grace" not in self._warned and (
        0 < self._time_left() < float("inf")):
      self._warned.add("grace")
      self._output.say(verdict_lib.waiting(self._ended, self._running(),
                                           self._grace))
