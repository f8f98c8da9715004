"""Wire codecs: how messages between workers are made smaller.

A third party's package adds its own with the entry-point group
`tf_cdops.wire_codecs`, as it does algorithms.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from tf_cdops.base import errors
from tf_cdops.registry import plugins

ENTRY_POINTS = "tf_cdops.wire_codecs"
SCOPES = ("across", "all")
_OURS = "tf_cdops.codecs"


@dataclasses.dataclass(frozen=True, eq=False)  # One is like no other.
class WireCodec:
  """How vectors travel.

  Attributes:
    name: what users call it.
    description: what it does, in one line.
    encode: (vector) -> the message, a tensor; both are TensorFlow's.
    decode: (message, like) -> the vector, with the dtype and length of `like`,
      which may be elsewhere: its numbers aren't to be used.
    num_bytes: (elements, itemsize) -> the message's bytes; for arrays too.
    dtypes: the names of those whose vectors it takes; others travel as they
      are.
    unit: the most that one rounding changes a number, as a part of `unit_of`.
    unit_of: what that is a part of, for people.
    has_feedback: whether classes keep what rounding lost and add it in the
      next step.
    overflows: (vector) -> how many of its finite numbers are too large for a
      message, which classes count; None if none can be.
    is_exact_again: whether what was decoded can be encoded again without loss,
      whatever it is joined with or cut into before.
    least: what one rounding changes beyond `unit`, at most: numbers that are
      nearly 0 may have no smaller ones beside them.
    passes: how many times as long as a copy of the vector it takes to encode
      it, or to decode it; the cost model asks.
    by_element: whether the message of vectors that are joined is theirs, one
      after another, as when each number has its own bytes.
  """

  name: str
  description: str
  encode: Callable[[Any], Any]
  decode: Callable[[Any, Any], Any]
  num_bytes: Callable[[Any, int], Any]
  dtypes: frozenset[str]
  unit: float
  is_exact_again: bool = False
  unit_of: str = "magnitudes"
  has_feedback: bool = False
  overflows: Callable[[Any], Any] | None = None
  least: float = 0.0
  passes: float = 1.0
  by_element: bool = False

  def bound(self, roundings: int) -> float:
    """Returns what so many roundings change at most, as a part of `unit_of`."""
    return (1 + self.unit)**roundings - 1

  def floor(self, roundings: int, terms: int) -> float:
    """Returns what so many roundings of each term change beyond that."""
    return self.least * roundings * terms

  @property
  def has_state(self) -> bool:
    """Whether classes keep anything for it, from step to step."""
    return self.has_feedback or self.overflows is not None

  def __deepcopy__(self, memo: Any) -> "WireCodec":
    return self


@dataclasses.dataclass(frozen=True)
class Wire:
  """A codec, and what it is for.

  Attributes:
    codec: makes the messages.
    scope: "across" for messages between workers, "all" for those between
      devices of one worker, too.
  """

  codec: WireCodec
  scope: str = SCOPES[0]

  def __str__(self) -> str:
    return self.codec.name + (f" ({self.scope})" if self.scope != SCOPES[0]
                              else "")


_codecs: dict[str, WireCodec] = {}


def register_wire_codec(name: str, *, description: str,
                        encode: Callable[[Any], Any],
                        decode: Callable[[Any, Any], Any],
                        num_bytes: Callable[[Any, int], Any],
                        dtypes: Iterable[str] = ("float32",),
                        unit: float = 0.0, is_exact_again: bool = False,
                        unit_of: str = "magnitudes", has_feedback: bool = False,
                        overflows: Callable[[Any], Any] | None = None,
                        least: float = 0.0, passes: float = 1.0,
                        by_element: bool = False,
                        override: bool = False) -> WireCodec:
  """Registers a codec, which `wire=name` then stands for.

  >>> codec = tf_cdops.register_wire_codec(
  ...     "half", description="float16, and infinity where that is too small.",
  ...     encode=lambda vector: tf.cast(vector, tf.float16),
  ...     decode=lambda message, like: tf.cast(message, like.dtype),
  ...     num_bytes=lambda elements, itemsize: 2 * elements,
  ...     unit=2**-11, is_exact_again=True, override=True)

  Args:
    name: what users call it.
    description: what it does, in one line.
    encode: see `WireCodec`, and so for the others.
    decode: makes a vector of a message.
    num_bytes: tells how long messages are.
    dtypes: whose vectors it takes.
    unit: what one rounding may lose.
    is_exact_again: whether rounding twice is rounding once.
    unit_of: of what.
    has_feedback: whether what rounding lost is added in the next step.
    overflows: counts what is too large.
    least: what one rounding may lose of numbers that are nearly 0.
    passes: how long it takes.
    by_element: whether each number has its own bytes.
    override: replaces a codec of that name instead of raising.

  Returns:
    The codec.
  """
  if not isinstance(name, str) or not name.isidentifier():
    raise errors.InputError(
        f"`name` ({name!r}) must be letters, digits and '_', and begin with a "
        "letter.")
  importlib.import_module(_OURS)  # Names that are taken.
  if name in _codecs and not override:
    raise errors.InputError(
        f"`name` ({name!r}) must not be registered already; pass "
        "override=True to replace it.")
  _codecs[name] = WireCodec(name, description, encode, decode, num_bytes,
                            frozenset(dtypes), unit, is_exact_again, unit_of,
                            has_feedback, overflows, least, passes,
                            by_element)
  return _codecs[name]


def wire_codecs() -> tuple[WireCodec, ...]:
  """Returns every registered codec, by name."""
  _load()
  return tuple(_codecs[name] for name in sorted(_codecs))


def check_wire(wire: Any, scope: str = SCOPES[0]) -> Wire | None:
  """Returns what the arguments `wire` and `wire_scope` mean.

  Args:
    wire: None, a codec's name, or a codec.
    scope: one of SCOPES.
  """
  if scope not in SCOPES:
    raise errors.InputError(
        f"`wire_scope` ({scope!r}) must be 'across', for what goes between "
        "workers, or 'all', for what goes between devices of one, too.")
  if wire is None and scope != SCOPES[0]:
    raise errors.InputError(
        f"`wire_scope` ({scope!r}) must be given with a `wire`, such as "
        "'bfloat16'.")
  if wire is None:
    return None
  if isinstance(wire, WireCodec):
    return Wire(wire, scope)
  _load()
  if not isinstance(wire, str) or wire not in _codecs:
    raise errors.InputError(
        f"`wire` ({wire!r}) must be None, a codec, or the name of one: "
        f"{', '.join(sorted(_codecs))}."
        f"{errors.did_you_mean(str(wire), _codecs)}")
  return Wire(_codecs[wire], scope)


@functools.cache  # Once per process: a broken plugin is reported once.
def _load() -> None:
  importlib.import_module(_OURS)
  plugins.load(ENTRY_POINTS, "wire codecs")
