"""Which `fit`, `evaluate` or `predict` a thread is in, and whether still."""

import dataclasses
import enum
import sys
import threading
import types
import weakref
from typing import Any

_NAMES = frozenset({"fit", "evaluate", "predict"})


class Place(enum.Enum):
  """Where in a call of Keras its thread is."""

  STEP = "in a step"
  BETWEEN_STEPS = "in hooks that belong to no step"
  ENDED = "no longer in the call"


@dataclasses.dataclass(frozen=True)
class KerasCall:
  """One call of `fit`, `evaluate` or `predict`, remembered and not held.

  Keras tells nobody that a step has raised: no hook is called. But the call's
  frame has left its thread's stack then, which another thread can see.

  To hold that frame would hold all its tensors, and a weak reference to it
  can't be made. So its id is compared, and its code. A later call may get the
  id of one that has ended; so there is a weak reference to the list of
  callbacks too, which Keras makes for each call and only the frame holds. If
  an exception's traceback keeps the list, it keeps the frame as well, and no
  other can have its id.

  Attributes:
    thread: the ident of the thread that is in the call.
    frame_id: the id of the call's frame; None in a loop of another name,
      which can't be told from its helpers.
    code: the frame's code.
    callbacks: the list of callbacks, weakly, if it is known.
  """

  thread: int
  frame_id: int | None = None
  code: types.CodeType | None = None
  callbacks: "weakref.ref[Any] | None" = dataclasses.field(
      default=None, compare=False)

  def place(self) -> Place:
    """Returns where the thread is now; may be asked in any thread."""
    frame = sys._current_frames().get(self.thread)
    if frame is None:
      return Place.ENDED
    if self.frame_id is None:
      return Place.STEP
    if self.callbacks is not None and self.callbacks() is None:
      return Place.ENDED
    place = Place.STEP
    while frame is not None:
      if id(frame) == self.frame_id and frame.f_code is self.code:
        return place
      if _is_between_steps(frame.f_code.co_name):
        place = Place.BETWEEN_STEPS
      frame = frame.f_back
    return Place.ENDED


def current() -> KerasCall:
  """Returns the innermost call of Keras that this thread is in."""
  thread = threading.get_ident()
  inner = frame = sys._getframe(1)
  while frame.f_code.co_name not in _NAMES:
    if frame.f_back is None:
      return KerasCall(thread)
    inner, frame = frame, frame.f_back
  return KerasCall(thread, id(frame), frame.f_code,
                   _weakly(inner.f_locals.get("self")))


def _is_between_steps(name: str) -> bool:
  # A step whose data end is never said to end. What follows it, such as
  # saving a model in on_epoch_end, mustn't be taken for it. A batch's own
  # hooks do belong to a step: they fetch its results.
  return name.startswith("on_") and "_batch_" not in name


def _weakly(value: Any) -> "weakref.ref[Any] | None":
  try:
    return weakref.ref(value)
  except TypeError:  # None, or a class with slots.
    return None
