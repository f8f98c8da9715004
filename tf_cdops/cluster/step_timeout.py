"""Ends a program whose step waits too long, naming who hasn't entered it.

TensorFlow notices a worker that died or was stopped. One that is alive and
stuck, in its input say, it waits for without end, and it can't cancel a step.
"""

import dataclasses
import os
import pathlib
import sys
import threading
import time
import types
from collections.abc import Callable

import tensorflow as tf

from tf_cdops.base import tf_compat

EXIT_CODE = 3
THREAD_NAME = "tf_cdops step timeout"
# Frames of these packages are part of the call, not of who makes it.
_INSIDE = (os.path.join(os.path.dirname(tf.__file__), ""),
           os.path.join(str(pathlib.Path(__file__).resolve().parents[1]), ""))
_LONGEST_NAP = 1.0
_FAREWELL_SECONDS = 3.0  # In which others, late as well, can still ask.


@dataclasses.dataclass(frozen=True)
class _Call:
  """A call of a function that has all-reduces, and where it was made."""

  number: int
  started: float
  thread: int
  place: tuple[int, types.CodeType, int]

  def goes_on(self) -> bool:
    """Whether its thread is still there.

    A thread that traces there makes the next call: it did so before this one.
    """
    frame = sys._current_frames().get(self.thread)
    while frame is not None and frame.f_code is not tf_compat.TRACING:
      if _place(frame) == self.place:
        return True
      frame = frame.f_back
    return False


def _place(frame: types.FrameType) -> tuple[int, types.CodeType, int]:
  """Returns where a frame is; another one may have its id later."""
  return id(frame), frame.f_code, frame.f_lasti


class StepTimeout:
  """Watches one call at a time, which is all that programs in step can make."""

  def __init__(self, seconds: float, who: Callable[[int], str]):
    """Initializes.

    Args:
      seconds: how long a call may take.
      who: (number) -> in words, who hasn't made the call of that number.
    """
    self._seconds, self._who = seconds, who
    self._call: _Call | None = None
    self._count = 0
    self._thread: threading.Thread | None = None

  @property
  def count(self) -> int:
    """How many calls this program has made so far."""
    return self._count

  def enter(self) -> int:
    """Notes that a call begins, in the thread that makes it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_INSIDE)):
      frame = frame.f_back
    self._count += 1
    self._call = _Call(self._count, time.monotonic(), threading.get_ident(),
                       _place(frame))
    if self._thread is None or not self._thread.is_alive():
      self._thread = threading.Thread(target=self._watch, daemon=True,
                                      name=THREAD_NAME)
      self._thread.start()
    return 0

  def _watch(self) -> None:
    over = 0  # The number of a call that is known to have ended.
    while True:
      call = self._call
      left = self._seconds
      if call is not None and call.number != over:
        left = call.started + self._seconds - time.monotonic()
        if left <= 0:
          if self._is_stuck(call):
            self._end(call)
          over, left = call.number, self._seconds
      time.sleep(min(left, _LONGEST_NAP))

  def _is_stuck(self, call: _Call) -> bool:
    return call.goes_on() and self._call is call

  def _end(self, call: _Call) -> None:
    blame = self._who(call.number)  # Which takes a while.
    if self._is_stuck(call):
      print(f"tf_cdops: a step has not ended after {self._seconds:g} s: "
            f"{blame}. Ending the program.", file=sys.stderr, flush=True)
      time.sleep(_FAREWELL_SECONDS)
      os._exit(EXIT_CODE)
