"""Says which programs haven't begun, from a process of its own.

While TensorFlow waits for them, no other thread of the program was seen to run,
nor a signal to be heard; it seems to hold Python's lock. So this is a program,
which ends when its standard input does. If others don't come, it kills its
parent.
"""

import json
import os
import select
import signal
import sys
import time

from tf_cdops.cluster import addresses
from tf_cdops.cluster import probing

_PROBE_SECONDS = 3.0


def main(text: str) -> None:
  """Waits; what for is in JSON: tasks, parent, limit, patience and again."""
  given = json.loads(text)
  tasks = [addresses.Task(*task) for task in given["tasks"]]
  deadline = time.monotonic() + given["limit"]
  pause = given["patience"]
  while not select.select([sys.stdin], [], [], pause)[0]:
    missing = probing.silent(tasks, _PROBE_SECONDS)
    late = time.monotonic() > deadline
    if missing:
      who = "; ".join(f"{task} {why}" for task, why in missing.items())
      print(_words(who, given["limit"], late), file=sys.stderr, flush=True)
    if late and missing and os.getppid() == given["parent"]:
      os.kill(given["parent"], signal.SIGKILL)
      return
    pause = given["again"]


def _words(who: str, limit: float, late: bool) -> str:
  if late:
    return (f"tf_cdops: SpmdStrategy has waited for {limit:g} s for other "
            f"programs: {who}. Killing this one (SIGKILL, exit code 137); "
            "start all within that time.")
  return (f"tf_cdops: SpmdStrategy waits for other programs, for {limit:g} s "
          f"in all: {who}.")


if __name__ == "__main__":
  main(sys.argv[1])
