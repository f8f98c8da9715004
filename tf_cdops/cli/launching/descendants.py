"""The processes that this one started, and those that they started in turn.

On Linux. Elsewhere there is no telling, and these functions do nothing.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import sys
import time
from collections.abc import Collection

_PR_SET_CHILD_SUBREAPER = 36
_KILL_SECONDS = 5.0  # Only what waits for a device takes longer to die.
_PAUSE = 0.01
_STOPPED, _DEAD = ("T", "t"), ("Z", "X")


def adopt_orphans() -> None:
  """Has processes whose parent ends become children of this one.

  So none of them gets lost, whatever sessions and groups they make.
  """
  if sys.platform == "linux":
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def is_stopped(pid: int) -> bool:
  """Whether a process was stopped, by SIGSTOP or a debugger."""
  return _status(pid)[0] in _STOPPED


def kill_all() -> None:
  """Kills every descendant, and waits until they have gone."""
  deadline = time.monotonic() + _KILL_SECONDS
  while (found := _find()) and time.monotonic() < deadline:
    for pid in found:
      with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    _reap()
    time.sleep(_PAUSE)


def reap_orphans(but: Collection[int]) -> None:
  """Lets adopted processes go that have ended.

  Args:
    but: children whose end someone else waits for.
  """
  own = os.getpid()
  for pid in _pids():
    state, parent = _status(pid)
    if parent == own and state in _DEAD and pid not in but:
      with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _reap() -> None:
  with contextlib.suppress(ChildProcessError):
    while os.waitpid(-1, os.WNOHANG)[0]:
      pass


def _find() -> list[int]:
  """Returns the descendants, but those that are dead already."""
  children: dict[int, list[int]] = {}
  dead = set()
  for pid in _pids():
    state, parent = _status(pid)
    children.setdefault(parent, []).append(pid)
    if state in _DEAD:
      dead.add(pid)
  found, new = [], [os.getpid()]
  while new:
    new = [child for parent in new for child in children.get(parent, ())]
    found += new
  return [pid for pid in found if pid not in dead]


def _pids() -> list[int]:
  if sys.platform != "linux":
    return []
  return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _status(pid: int) -> tuple[str, int]:
  """Returns a process's state and its parent; "X" if there is no process."""
  try:
    text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
  except OSError:
    return "X", 0
  # Its name, in parentheses, may have anything in it.
  state, parent = text.rpartition(")")[2].split()[:2]
  return state, int(parent)
