"""Network namespaces without names, each held by a file descriptor.

Nothing has to be cleaned up: the kernel ends a namespace, with its interfaces,
when no process is in it and no descriptor holds it, however those ended.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tf_cdops.base import errors
from tf_cdops.cluster import isolation

_T = TypeVar("_T")


class Namespace:
  """A new network namespace, with nothing in it but a loopback that is down.

  A thread can be in another network than its process. So whatever is to happen
  in there happens in a thread that enters it, and ends; what that thread starts
  stays inside.
  """

  def __init__(self) -> None:
    self._descriptor: int | None = _in_a_thread(_unshare)

  def run(self, action: Callable[[], _T]) -> _T:
    """Returns what `action` does in there; it may start processes."""
    def enter_and_act() -> _T:
      assert self._descriptor is not None
      _call("setns", self._descriptor, isolation.CLONE_NEWNET)
      return action()

    return _in_a_thread(enter_and_act)

  def close(self) -> None:
    """Lets go: it ends with the last process in there. Twice does no harm."""
    if self._descriptor is not None:
      os.close(self._descriptor)
      self._descriptor = None


def _unshare() -> int:
  _call("unshare", isolation.CLONE_NEWNET)
  return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _call(name: str, *args: int) -> None:
  if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) != 0:
    why = os.strerror(ctypes.get_errno())
    raise errors.ClusterError(
        f"a network namespace can't be had ({name}: {why}); the system must "
        "allow it.")


def _in_a_thread(action: Callable[[], _T]) -> _T:
  """Runs an action in a thread of its own, to its end even after a Ctrl-C.

  Whatever it waits for must have a limit, then.
  """
  outcome: list[Any] = []
  failure: list[BaseException] = []

  def run() -> None:
    try:
      outcome.append(action())
    except BaseException as error:  # Raised again below, in the caller.
      failure.append(error)
    finally:
      ended.set()

  ended = threading.Event()
  try:
    threading.Thread(target=run, daemon=True).start()
    ended.wait()
  except KeyboardInterrupt:
    ended.wait()
    raise
  if failure:
    raise failure[0]
  return outcome[0]
