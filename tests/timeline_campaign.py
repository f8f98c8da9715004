"""Makes timelines of many kinds, and counts how many hold what they promise.

    python -m tests.timeline_campaign --parts=cells,late,interrupts

cells: the bytes of each bucket are those of `explain`, and each device's busy
and waiting seconds add up to the steps within 5%, on 12 sites. late: one
replica of four sleeps for 50 ms in each step, and must be blamed, 20 times.
interrupts: the command gets Ctrl-C at different moments, 10 times, and leaves a
valid file or none. It ends with 1 if anything is wrong.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags

from tests import python_process
from tests import timeline_format
import tf_cdops

_PARTS = flags.DEFINE_list("parts", ["cells", "late", "interrupts"], "Which.")
_FIRST = flags.DEFINE_integer("first", 0, "Of the cells, to go on with.")
_LATE = flags.DEFINE_integer("late", 20, "How many times a replica is late.")
_INTERRUPTS = flags.DEFINE_integer("interrupts", 10, "How many interrupts.")
# Workers and devices of each, and specs.
_CELLS = [(0, devices, spec) for devices in (2, 3, 4)
          for spec in ("xring", "ps#2", "xring:1k:ps")]
_CELLS += [(2, 1, "xring"), (2, 2, "ps/ps"), (3, 1, "auto")]
# The demo's model, in the order of its variables.
_SHAPES = [(3, 3, 1, 32), (32,), (3, 3, 32, 32), (32,), (512, 64), (64,),
           (64, 10), (10,)]
_SECONDS = 200


def _trace(path: pathlib.Path, workers: int, devices: int,
           spec: str) -> subprocess.CompletedProcess[str]:
  return python_process.run(
      "-m", "tf_cdops", "trace", f"--out={path}", f"--workers={workers}",
      f"--devices={devices}", f"--all_reduce_spec={spec}", "--json",
      extras=("sklearn",))


def _check_cell(folder: pathlib.Path, workers: int, devices: int,
                spec: str) -> list[str]:
  """Returns what is wrong with the timeline of a site."""
  path = folder / "trace.json"
  done = _trace(path, workers, devices, spec)
  if done.returncode:
    return [done.stderr]
  found = json.loads(done.stdout)
  topology = tf_cdops.Topology.grid(max(workers, 1), devices,
                                    device_type="CPU")
  expected = tf_cdops.explain(
      spec, topology, [(shape, "float32") for shape in _SHAPES])
  wrong = []
  seen = [(one["algorithm"], one["bytes"]) for one in found["buckets"]]
  planned = [(b.algorithm, b.num_bytes) for b in expected.plan.buckets]
  if seen != planned:
    wrong.append(f"buckets {seen}, and explain has {planned}")
  content = json.loads(path.read_text(encoding="utf-8"))
  steps = sum(event["dur"] for event in content["traceEvents"]
              if event.get("cat") == "step") / 1e6
  for lane, (busy, waiting) in timeline_format.busy_and_waiting(
      content).items():
    if abs(busy + waiting - steps) > 0.05 * steps:
      wrong.append(f"{lane}: {busy} + {waiting} s of {steps} s")
  return wrong


def _cells(folder: pathlib.Path) -> int:
  failed = 0
  cells = _CELLS[_FIRST.value:]
  for cell in cells:
    wrong = _check_cell(folder, *cell)
    failed += bool(wrong)
    print(f"cell {cell}: {'; '.join(wrong) or 'right'}", flush=True)
  print(f"cells: {len(cells) - failed} of {len(cells)} right")
  return failed


def _late(folder: pathlib.Path) -> int:
  done = python_process.run("-m", "tests.timeline_late", str(folder),
                            str(_LATE.value))
  print(done.stdout, done.stderr[-2000:] if done.returncode else "")
  return done.returncode


def _interrupts(folder: pathlib.Path) -> int:
  """Interrupts the command, later and later."""
  failed = 0
  for number in range(1, _INTERRUPTS.value + 1):
    path = folder / f"interrupted_{number}.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "tf_cdops", "trace", f"--out={path}",
         "--steps=100", "--devices=2"], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
        env=python_process.environment(extras=("sklearn",)))
    deadline = time.monotonic() + _SECONDS
    while not path.exists() and process.poll() is None and (
        time.monotonic() < deadline):
      time.sleep(0.01)  # Until it has begun to profile.
    time.sleep(0.15 * number)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=_SECONDS)
    what = "no file"
    if path.exists():
      events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
      what = f"{sum(one.get('cat') == 'step' for one in events)} steps"
    left = [name for name in os.listdir(folder)
            if name.startswith(f".{path.name}")]
    wrong = process.returncode not in (0, 130) or bool(left)
    failed += wrong
    print(f"interrupt {number}: exit code {process.returncode}, {what}"
          f"{', WRONG: ' + said[-500:] if wrong else ''}", flush=True)
  return failed


def main(argv: list[str]) -> None:
  del argv
  parts = {"cells": _cells, "late": _late, "interrupts": _interrupts}
  with tempfile.TemporaryDirectory() as name:
    failed = sum(parts[part](pathlib.Path(name)) for part in _PARTS.value)
  print("All is right." if not failed else f"{failed} WRONG.")
  sys.exit(1 if failed else 0)


if __name__ == "__main__":
  app.run(main)
