"""The parent's side: processes that answer requests, each within a limit."""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tf_cdops.cli import child_process
from tf_cdops.cli import output

ChildError = child_process.ChildError
_ROOT = str(pathlib.Path(__file__).resolve().parents[1])
_MOST = 300  # Characters of an error's message.


class Child(child_process.Child):
  """A process that runs a module of `benchmarks`; a context manager.

  >>> with children.Child("benchmarks.local_cell") as child:
  ...   child.ask({"do": "measure"}, limit=60)
  """

  def __init__(self, module: str, *, python: str = sys.executable,
               env: Mapping[str, str] | None = None):
    # Another Python has other modules: of this one's it gets the root alone.
    super().__init__("-m", module, python=python, cwd=_ROOT, env={
        "PYTHONPATH": _ROOT, "CUDA_VISIBLE_DEVICES": "-1"} | dict(env or {}))
    self._module = module

  def __enter__(self) -> "Child":
    return self

  def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """Sends a request and returns the answer."""
    self.send(request)
    return self.answer(limit)

  def answer(self, limit: float) -> dict[str, Any]:
    """Returns the next answer, or raises after `limit` seconds."""
    answer = self.receive(limit)
    if "error" in answer:
      raise ChildError(f"{self._module}: {answer['type']}: "
                       + output.brief(Exception(answer["error"]))[:_MOST])
    return answer


def ask_all(peers: Sequence[Child], requests: Sequence[Mapping[str, Any]],
            limit: float) -> list[dict[str, Any]]:
  """Sends each peer its request before waiting for any answer."""
  for peer, request in zip(peers, requests, strict=True):
    peer.send(request)
  return [peer.answer(limit) for peer in peers]
