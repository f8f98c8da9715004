"""Starts all programs again when one has failed, so many times."""

import os
import time

from tf_cdops.cli.launching import events as events_lib
from tf_cdops.cli.launching import output as output_lib
from tf_cdops.cli.launching import places
from tf_cdops.cli.launching import supervisor

RESTART = "TF_CDOPS_RESTART"  # Tells programs how often that has happened.
_LONGEST_PAUSE = 10.0


def run(task: supervisor.Task, place: places.Place, max_restarts: int) -> int:
  """Runs the programs until they end well; returns the exit code.

  Args:
    task: what to run.
    place: where, for each run anew.
    max_restarts: how often to start again.
  """
  events = events_lib.Events()
  events.take_signals()
  output = output_lib.Output(events)
  restarts = 0
  while True:
    task.environment[RESTART] = str(restarts)
    outcome = supervisor.run(task, place(restarts), output, events)
    if not outcome.restart or restarts == max_restarts:
      return outcome.code
    pause = min(2.0 ** restarts, _LONGEST_PAUSE)
    restarts += 1
    output.say(f"starting again in {pause:g} s, with {RESTART}={restarts} "
               f"(of at most {max_restarts}).")
    for event in events.until(time.monotonic() + pause):
      if isinstance(event, events_lib.Told):
        return event.code


def environment(devices: int | None) -> dict[str, str]:
  """Returns the programs' variables: this process's, and what they need."""
  found = os.environ | {"PYTHONUNBUFFERED": "1"}
  if devices is not None:  # They are CPUs.
    found |= {"TF_CDOPS_DEVICES": str(devices), "CUDA_VISIBLE_DEVICES": "-1"}
  return found
