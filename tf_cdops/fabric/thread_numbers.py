"""A small number for each thread that is alive, used again when one ends."""

import heapq
import itertools
import threading
import weakref

from tf_cdops.base import errors

LIMIT = 1024


class _Number:
  """A number that is taken until this object is gone."""

  def __init__(self) -> None:
    with _lock:
      self.value = heapq.heappop(_free) if _free else next(_fresh)
    weakref.finalize(self, _give_back, self.value).atexit = False


def _give_back(number: int) -> None:
  with _lock:
    heapq.heappush(_free, number)


_lock = threading.RLock()  # A number may be given back while one is taken.
_free: list[int] = []
_fresh = itertools.count()
_local = threading.local()  # What it holds goes when its thread ends.


def current() -> int:
  """Returns this thread's number, below LIMIT and unlike any other's."""
  if not hasattr(_local, "number"):
    _local.number = _Number()
  if _local.number.value >= LIMIT:
    raise errors.AlgorithmError(
        f"`algorithm` ('collective') must be used by at most {LIMIT} threads "
        "at once; let some of them end, or use another algorithm.")
  return _local.number.value
