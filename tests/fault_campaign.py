"""Kills and stops workers of SpmdStrategy's programs, and looks what becomes.

    python -m tests.fault_campaign --cases=20

Each case starts `tf_cdops launch`, and kills or stops one worker's program from
outside, at a moment that chance chooses: while programs start, in a step, in
saving or between epochs. Within a minute that worker must be named, and all
programs must end. With --max_restarts the run must end well, with the weights,
to the last bit, of a run that nothing disturbed. No process and no file may be
left. It prints a line for each case, and ends with 1 if one failed.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

from absl import app
from absl import flags

from tests import fault_program
from tests import python_process

_CASES = flags.DEFINE_integer("cases", 20, "How many.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the moments.")
_ONLY = flags.DEFINE_list("only", None, "Numbers of cases; None for all.")
_PROGRAM = fault_program.__file__
_MARK = "TF_CDOPS_FAULT_CASE"  # An environment variable of all processes.
_NAME_SECONDS = _END_SECONDS = 60.0
_RUN_SECONDS = 240.0
_PHASES = ("start", "joined", "step", "save", "between")
# The longest that chance waits, from the beginning of each; of a start that
# takes a few seconds. A quick machine has trained all after 7 s.
_LONGEST = {"start": 4.0, "joined": 1.0, "step": 0.1, "save": 0.1,
            "between": 0.02}


@dataclasses.dataclass(frozen=True)
class Case:
  """What to do to whom, and when."""

  number: int
  workers: int
  target: int
  signal: signal.Signals
  phase: str
  epoch: int
  delay: float
  max_restarts: int

  def __str__(self) -> str:
    return (f"{self.number:2}: {self.signal.name} of {self.target} of "
            f"{self.workers} at {self.phase} {self.epoch} + {self.delay:.2f} "
            f"s, {self.max_restarts} restarts")


def cases(count: int, seed: int) -> list[Case]:
  """Half of them strike the first worker, and half of all stop one."""
  chance = random.Random(seed)
  made = []
  for number in range(count):
    phase = _PHASES[number // 4 % len(_PHASES)]
    workers = 3 if number % 5 == 4 else 2
    target = 0 if number % 2 == 0 else chance.randrange(1, workers)
    made.append(Case(
        number, workers, target,
        signal.SIGKILL if number // 2 % 2 == 0 else signal.SIGSTOP, phase,
        chance.randrange(1, fault_program.EPOCHS - 1)
        if phase in ("step", "save", "between") else 0,
        chance.uniform(0, _LONGEST[phase]), 0 if number % 7 == 6 else 1))
  return made


class Launch:
  """A running launcher, and what it has printed."""

  def __init__(self, workers: int, max_restarts: int, folder: pathlib.Path):
    self.mark = os.urandom(8).hex()
    self.lines: list[str] = []
    temporary = folder / "tmp"
    temporary.mkdir()
    self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    self._process = subprocess.Popen(
        [sys.executable, "-m", "tf_cdops", "launch", f"--workers={workers}",
         f"--max_restarts={max_restarts}", _PROGRAM, str(folder)],
        env=os.environ | {
            _MARK: self.mark, "TMPDIR": str(temporary),
            "PYTHONPATH": str(python_process.ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    threading.Thread(target=self._read, daemon=True).start()

  def _read(self) -> None:
    assert self._process.stdout is not None
    for line in self._process.stdout:
      self._new.put(line)
    self._new.put(None)

  def until(self, pattern: str, seconds: float) -> bool:
    """Waits for such a line; returns False if none comes in time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
      try:
        line = self._new.get(timeout=left)
      except queue.Empty:
        return False
      if line is None:
        return False
      self.lines.append(line)
      if re.search(pattern, line):
        return True
    return False

  def pid(self, task: int) -> int:
    """Returns the process of a worker's program."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
      for pid, environment in sorted(processes(self.mark)):
        config = json.loads(environment.get("TF_CONFIG", "{}"))
        if config.get("task", {}).get("index") == task:
          return pid
      time.sleep(0.02)
    raise TimeoutError(f"no program of worker {task}")

  def wait(self, seconds: float) -> int | None:
    """Returns the exit code; None if it still runs by then."""
    self.until("(?!)", seconds)
    with contextlib.suppress(subprocess.TimeoutExpired):
      return self._process.wait(1)
    return None

  def kill(self) -> None:
    self._process.kill()
    for pid, _ in processes(self.mark):
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def processes(mark: str) -> Iterator[tuple[int, dict[str, str]]]:
  """Yields each process that has the mark, and its environment."""
  for name in os.listdir("/proc"):
    if name.isdecimal():
      with contextlib.suppress(OSError):
        text = pathlib.Path(f"/proc/{name}/environ").read_bytes()
        environment = dict(
            entry.split("=", 1) for entry in
            text.decode(errors="replace").split("\0") if "=" in entry)
        if environment.get(_MARK) == mark:
          yield int(name), environment


def undisturbed(workers: int) -> list[str]:
  """Returns the weights of a run that nothing happens to."""
  with tempfile.TemporaryDirectory() as folder:
    launch = Launch(workers, 0, pathlib.Path(folder))
    code = launch.wait(_RUN_SECONDS)
    if code != 0:
      launch.kill()
      raise RuntimeError("".join(launch.lines))
    return written(pathlib.Path(folder), workers)[0]["weights"]


def written(folder: pathlib.Path, workers: int) -> list[dict]:
  return [json.loads((folder / f"{rank}.json").read_text())
          for rank in range(workers)]


def run(case: Case, weights: Sequence[str], folder: pathlib.Path
        ) -> tuple[list[str], str, Launch]:
  """Returns what is wrong, in words, what was seen, and the launcher."""
  launch = Launch(case.workers, case.max_restarts, folder)
  pid = launch.pid(case.target)
  if case.phase != "start" and not launch.until(
      rf"worker {case.target}\W+at {case.phase} {case.epoch}\b", _RUN_SECONDS):
    return ["it never came there"], "", launch
  time.sleep(case.delay)
  os.kill(pid, case.signal)
  struck = time.monotonic()
  wrong = []
  said = ("was killed by SIGKILL" if case.signal == signal.SIGKILL
          else "is stopped")
  if not launch.until(f"worker {case.target} {said}", _NAME_SECONDS):
    wrong.append("the worker isn't named")
  named = time.monotonic() - struck
  if not launch.until("starting again" if case.max_restarts else "(?!)",
                      _END_SECONDS - named) and case.max_restarts:
    wrong.append("no restart within a minute")
  ended = time.monotonic() - struck
  if not case.max_restarts and ended > _END_SECONDS - 1:
    wrong.append("programs ran on")
  code = launch.wait(0 if wrong or not case.max_restarts else _RUN_SECONDS)
  seen = (f"named after {named:.1f} s, over after {ended:.1f} s, exit code "
          f"{code}")
  if case.max_restarts and code == 0:
    results = written(folder, case.workers)
    # None is left to train if the last one's state had been saved.
    firsts = [(one["epochs"] or [fault_program.EPOCHS])[0] for one in results]
    seen += f", went on from epoch {firsts[0]}"
    if any(one["weights"] != list(weights) for one in results):
      wrong.append("the weights differ")
    # How far a program comes in some seconds is the machine's matter.
    if any(one["epochs"] != results[0]["epochs"] for one in results) or (
        case.phase not in ("start", "joined")
        and firsts[0] not in (case.epoch, case.epoch + 1)):
      wrong.append(f"it went on from {[one['epochs'] for one in results]}")
  elif case.max_restarts or code in (0, None):
    wrong.append(f"exit code {code}")
  return wrong + left_over(launch, case, folder), seen, launch


def left_over(launch: Launch, case: Case, folder: pathlib.Path) -> list[str]:
  """Says what is left that shouldn't be."""
  wrong = []
  alive = [pid for pid, _ in processes(launch.mark)]
  if alive:
    wrong.append(f"{len(alive)} processes left")
  expected = {f"{rank}.json" for rank in range(case.workers)} | {"tmp"}
  if case.max_restarts == 0:
    expected.add("backup")
  files = {path.name for path in folder.iterdir()} - expected
  files |= {f"tmp/{path.name}" for path in (folder / "tmp").iterdir()}
  return wrong + [f"left over: {name}" for name in sorted(files)]


def main(argv: list[str]) -> None:
  del argv
  chosen = cases(_CASES.value, _SEED.value)
  if _ONLY.value is not None:
    chosen = [case for case in chosen if str(case.number) in _ONLY.value]
  weights = {workers: undisturbed(workers)
             for workers in sorted({case.workers for case in chosen})}
  failed = 0
  for case in chosen:
    with tempfile.TemporaryDirectory() as folder:
      wrong, seen, launch = run(case, weights[case.workers],
                                pathlib.Path(folder))
      launch.kill()
    failed += bool(wrong)
    print(f"{case}: {'FAILED: ' + '; '.join(wrong) if wrong else 'good'}; "
          f"{seen}", flush=True)
    if wrong:
      print("".join(f"    {line}" for line in launch.lines
                    if "] at " not in line), flush=True)
  print(f"{len(chosen) - failed} of {len(chosen)} good")
  sys.exit(failed > 0)


if __name__ == "__main__":
  app.run(main)
