"""Runs the doctor's trials in another process, and outlives what it does."""

import argparse
import dataclasses
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any

import tf_cdops
from tf_cdops import errors

WORKS, CANT, WRONG, FAILED, HUNG = ("works", "can't", "WRONG", "FAILED", "HUNG")
TENSORFLOW = "TensorFlow"  # The name of the trial that is its start.
_START_SECONDS = 90.0  # Loading TensorFlow from a cold disk takes its time.
_SOURCE = str(pathlib.Path(tf_cdops.__file__).resolve().parents[1])


@dataclasses.dataclass(frozen=True)
class Trial:
  """What became of one algorithm; `detail` says why and what to do."""

  name: str
  outcome: str
  detail: str = ""

  @property
  def ok(self) -> bool:
    """Whether it did what it should here."""
    return self.outcome in (WORKS, CANT)

  def to_dict(self) -> dict[str, Any]:
    return dataclasses.asdict(self)


def examine(args: argparse.Namespace, limit: float
            ) -> tuple[dict[str, Any] | None, list[Trial]]:
  """Tries every algorithm.

  A trial that hangs or crashes ends its process; another one takes over with
  the rest.

  Args:
    args: the flags of `site_flags`.
    limit: seconds for each algorithm.

  Returns:
    The facts about this installation, None if TensorFlow didn't start, and
    the trials by name.
  """
  facts = None
  done: dict[str, Trial] = {}
  while True:
    current, ended = TENSORFLOW, False
    for event in _events(args, limit, tuple(done)):
      if "facts" in event:
        facts = event["facts"]
      elif "refused" in event:
        raise errors.InputError(event["refused"])
      elif "trying" in event:
        current = event["trying"]
      elif "trial" in event:
        done[current] = Trial(**event["trial"])
      elif "lost" in event:
        done[current] = Trial(current, event["lost"], event["detail"])
      else:
        ended = True
    if ended or current == TENSORFLOW:
      return facts, sorted(done.values(), key=lambda trial: trial.name)


def _events(args: argparse.Namespace, limit: float,
            skip: Sequence[str]) -> Iterator[dict[str, Any]]:
  """Yields what a new process reports, and its loss if it ends untimely."""
  with tempfile.TemporaryFile() as said:
    process = subprocess.Popen(
        [sys.executable, "-m", "tf_cdops.cli.trials", *_flags(args),
         f"--skip={','.join(skip)}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said,
        env=os.environ | {
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join([_SOURCE, *filter(None, sys.path)])})
    try:
      lines = _lines(process)
      seconds = _START_SECONDS
      while True:
        try:
          line = lines.get(timeout=seconds)
        except queue.Empty:
          yield {"lost": HUNG, "detail": f"no end after {seconds:g} s"}
          return
        if line is None:
          code = process.wait(timeout=_START_SECONDS)
          yield {"lost": FAILED, "detail": f"the process ended with code {code}"
                 f"; it said: {_last_line(said)}"}
          return
        event = _event(line)
        if event is not None:
          yield event
          if "end" in event:
            return
          seconds = limit
    finally:
      process.kill()
      process.wait(timeout=_START_SECONDS)


def _flags(args: argparse.Namespace) -> list[str]:
  given = {"devices": args.devices, "device_type": args.device_type,
           "workers": args.workers}
  return [f"--{name}={value}" for name, value in given.items()
          if value is not None]


def _lines(process: "subprocess.Popen[bytes]"
           ) -> "queue.Queue[bytes | None]":
  """Returns a queue that fills with the lines of a process; None ends it."""
  lines: queue.Queue[bytes | None] = queue.Queue()

  def read() -> None:
    assert process.stdout is not None
    with process.stdout as stdout:
      for line in stdout:
        lines.put(line)
    lines.put(None)

  threading.Thread(target=read, daemon=True).start()
  return lines


def _event(line: bytes) -> dict[str, Any] | None:
  """Returns a report; None for anything else that was printed there."""
  try:
    event = json.loads(line)
  except ValueError:
    return None
  return event if isinstance(event, dict) else None


def _last_line(said: IO[bytes]) -> str:
  said.seek(0)
  lines = said.read().decode(errors="replace").split("\n")
  return next((line.strip() for line in reversed(lines) if line.strip()),
              "nothing")
