"""The parent's side: processes that answer requests, each within a limit."""

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
from collections.abc import Mapping, Sequence
from typing import Any

_ROOT = str(pathlib.Path(__file__).resolve().parents[1])
_END_SECONDS = 10.0


class ChildError(Exception):
  """A child failed, ended, or didn't answer in time."""


class Child:
  """A process that runs a module of `benchmarks`; a context manager.

  >>> with children.Child("benchmarks.local_cell") as child:
  ...   child.ask({"do": "measure"}, limit=60)
  """

  def __init__(self, module: str, *, python: str = sys.executable,
               env: Mapping[str, str] | None = None):
    self._module = module
    self._said = tempfile.TemporaryFile()  # noqa: SIM115  # `end` closes.
    self._process = subprocess.Popen(
        [python, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=self._said, text=True, cwd=_ROOT,
        # A session of its own: Ctrl-C is the parent's to handle.
        start_new_session=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": _ROOT,
                          "CUDA_VISIBLE_DEVICES": "-1"} | dict(env or {}))
    self._lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=self._read, daemon=True).start()

  def __enter__(self) -> "Child":
    return self

  def __exit__(self, *_: Any) -> None:
    self.end()

  def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """Sends a request and returns the answer."""
    self.send(request)
    return self.answer(limit)

  def send(self, request: Mapping[str, Any]) -> None:
    assert self._process.stdin is not None
    try:
      print(json.dumps(request), file=self._process.stdin, flush=True)
    except OSError:
      raise ChildError(f"{self._module} has ended; it said: "
                       f"{self._last_line()}") from None

  def answer(self, limit: float) -> dict[str, Any]:
    """Returns the next answer, or raises after `limit` seconds."""
    try:
      line = self._lines.get(timeout=limit)
    except queue.Empty:
      raise ChildError(
          f"{self._module} hasn't answered within {limit:g} s") from None
    if line is None:
      raise ChildError(f"{self._module} has ended; it said: "
                       f"{self._last_line()}")
    answer = json.loads(line)
    if "error" in answer:
      raise ChildError(f"{self._module}: {answer['error']}")
    return answer

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

  def _last_line(self) -> str:
    self._said.seek(0)
    lines = self._said.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()),
                "nothing")


def ask_all(peers: Sequence[Child], requests: Sequence[Mapping[str, Any]],
            limit: float) -> list[dict[str, Any]]:
  """Sends each peer its request before waiting for any answer."""
  for peer, request in zip(peers, requests, strict=True):
    peer.send(request)
  return [peer.answer(limit) for peer in peers]
