"""Ends programs, in a bounded time, and all that they have started."""

import time
from collections.abc import Sequence

from tf_cdops.cli.launching import descendants
from tf_cdops.cli.launching import events as events_lib
from tf_cdops.cli.launching import program as program_lib

_KILL_SECONDS = 5.0  # For a program that was killed to be gone.


def end(programs: Sequence[program_lib.Program],
        signals: Sequence[tuple[int, float]],
        events: events_lib.Events) -> None:
  """Sends one signal after the other to those that still run, SIGKILL last.

  Args:
    programs: which.
    signals: the polite ones, and how many seconds to wait after each.
    events: another signal to the launcher, a second Ctrl-C say, ends the
      waiting for programs to end by themselves.
  """
  for each in programs:
    if each.is_stopped:  # It would heed no other signal.
      each.kill()
  for number, seconds in signals:
    for each in programs:
      each.signal(number)
    if not _wait(programs, seconds, events):
      break
  for each in programs:
    each.kill()
  _wait(programs, _KILL_SECONDS, events_lib.Events())
  descendants.kill_all()


def hurried(events: events_lib.Events) -> bool:
  """Whether the launcher was told to end, again."""
  return any(isinstance(event, events_lib.Told)
             for event in events.until(time.monotonic()))


def _wait(programs: Sequence[program_lib.Program], seconds: float,
          events: events_lib.Events) -> bool:
  """Waits until all have ended, or so long; returns False if in a hurry."""
  deadline = time.monotonic() + seconds
  while any(each.runs for each in programs):
    left = deadline - time.monotonic()
    if left <= 0:
      break
    if isinstance(events.get(min(left, 0.1)), events_lib.Told):
      return False
  return True
