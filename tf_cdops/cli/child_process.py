"""Runs Python in another process that reports, one JSON object a line."""

import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

_SOURCE = str(pathlib.Path(__file__).resolve().parents[2])
_END_SECONDS = 10.0


class ChildError(Exception):
  """A child failed, ended, or didn't report in time."""


class LateError(ChildError):
  """A child didn't report in time."""


class Child:
  """A Python process with this one's modules; a context manager that ends it.

      with child_process.Child("-m", "a.module") as child:
        child.send({"do": "measure"})
        child.receive(limit=60)
  """

  def __init__(self, *args: str, python: str = sys.executable,
               env: Mapping[str, str] | None = None, cwd: str | None = None):
    self._said = tempfile.TemporaryFile()  # noqa: SIM115  # `end` closes.
    self._process = subprocess.Popen(
        [python, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=self._said, cwd=cwd,
        # A session of its own: Ctrl-C is the parent's to handle.
        start_new_session=True,
        env=os.environ | {
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join([_SOURCE, *filter(None, sys.path)])
        } | dict(env or {}))
    self._lines: queue.Queue[bytes | None] = queue.Queue()
    threading.Thread(target=self._read, daemon=True).start()

  def __enter__(self) -> "Child":
    return self

  def __exit__(self, *_: Any) -> None:
    self.end()

  @property
  def pid(self) -> int:
    return self._process.pid

  def send(self, message: Mapping[str, Any]) -> None:
    assert self._process.stdin is not None
    try:
      self._process.stdin.write(json.dumps(message).encode() + b"\n")
      self._process.stdin.flush()
    except OSError:
      raise self._ended() from None

  def receive(self, limit: float) -> dict[str, Any]:
    """Returns the next report, or raises after `limit` seconds of silence.

    Whatever else is printed there is passed over.
    """
    while True:
      try:
        line = self._lines.get(timeout=limit)
      except queue.Empty:
        raise LateError(f"no answer within {limit:g} s") from None
      if line is None:
        raise self._ended()
      with contextlib.suppress(ValueError):
        report = json.loads(line)
        if isinstance(report, dict):
          return report

  def end(self) -> None:
    """Ends the process and what it started in its session."""
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait(timeout=_END_SECONDS)
    for stream in (self._process.stdin, self._said):
      # What was still to be sent has nowhere to go.
      with contextlib.suppress(OSError):
        if stream is not None:
          stream.close()

  def _read(self) -> None:
    assert self._process.stdout is not None
    with self._process.stdout as stdout:
      for line in stdout:
        self._lines.put(line)
    self._lines.put(None)

  def _ended(self) -> ChildError:
    with contextlib.suppress(subprocess.TimeoutExpired):
      self._process.wait(timeout=_END_SECONDS)
    self._said.seek(0)
    lines = self._said.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()),
                "nothing")
    return ChildError(f"the process ended with code {self._process.returncode}"
                      f"; it said: {last}")
