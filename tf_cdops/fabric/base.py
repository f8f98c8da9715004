"""The verbs that an all-reduce algorithm may use, and where it runs.

An algorithm is a function of a fabric, one value per replica, and a group. It
never sees TensorFlow: on `fabric.tensorflow` the verbs emit ops, on
`fabric.tracing` they record what moves, which proves the algorithm.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tf_cdops.base import topology as topology_lib


class Value(Protocol):
  """A vector that is on one place. Parts of a vector are values too."""

  @property
  def place(self) -> str:
    """The name of the device it is on."""

  @property
  def length(self) -> int | None:
    """Its number of elements; None if that isn't known yet."""


class Codec(Protocol):
  """Makes messages of values, with fewer bytes, and values of messages."""

  @property
  def name(self) -> str:
    """What users call it."""

  @property
  def is_exact_again(self) -> bool:
    """Whether what was rounded once can be encoded again without loss."""

  @property
  def has_feedback(self) -> bool:
    """Whether what it loses is to be added to the next message."""

  @property
  def overflows(self) -> Callable[[Any], Any] | None:
    """Counts the numbers of a vector that are too large for a message."""

  def encode(self, vector: Any) -> Any:
    """Returns the message for a vector of TensorFlow's."""

  def decode(self, message: Any, like: Any) -> Any:
    """Returns the vector; it has the dtype and shape of `like`."""

  def num_bytes(self, elements: Any, itemsize: int) -> Any:
    """Returns the message's bytes, for numbers or arrays of elements."""


class Fabric(Protocol):
  """Splits, joins, adds and copies values."""

  def split(self, value: Any, count: int) -> list[Any]:
    """Cuts a value into `count` near-equal parts where it is.

    Parts differ by at most one element, the longer ones first; a short value
    has empty parts, which cost nothing to copy, add or join.
    """

  def concat(self, parts: Sequence[Any], place: str) -> Any:
    """Joins parts, in this order, on `place`."""

  def add(self, values: Sequence[Any], place: str, *,
          in_order: bool = False) -> Any:
    """Sums values on `place`; in this order to the bit, if `in_order`."""

  def copy(self, value: Any, place: str) -> Any:
    """Returns the value on `place`; free if it is there already."""

  def encode(self, value: Any, codec: Codec) -> Any:
    """Returns the message for a value, where it is; it can be copied."""

  def decode(self, message: Any, codec: Codec, like: Any) -> Any:
    """Returns the value of a message, where that is.

    Args:
      message: what `encode` returned, or a copy of it.
      codec: what it was encoded with.
      like: the value that it was made of.
    """

  def native_all_reduce(self, engine: str, values: Sequence[Any],
                        group: "Group") -> list[Any]:
    """All-reduces with one of TensorFlow's own engines."""


@dataclasses.dataclass(frozen=True)
class Group:
  """Where an all-reduce takes place.

  Attributes:
    places: for each value, the name of its device.
    workers: for each worker, its values, as positions in `places`.
    hosts: for each worker, the name of its CPU.
    rotation: the number of this all-reduce among those that run side by side;
      algorithms rotate roles by it, so that they don't all load one device.
  """

  places: tuple[str, ...]
  workers: tuple[tuple[int, ...], ...]
  hosts: tuple[str, ...]
  rotation: int = 0

  @classmethod
  def from_topology(cls, topology: topology_lib.Topology,
                    rotation: int = 0) -> "Group":
    """Returns the group of all devices of a topology."""
    return cls(topology.devices, topology.workers, topology.hosts, rotation)

  def endpoint(self, place: str) -> int:
    """Returns a number for a place: its position, and after those the hosts'.

    A host that is one of the places, or of several workers, has one number.
    """
    if place in self.places:
      return self.places.index(place)
    return len(self.places) + self.hosts.index(place)

  def worker(self, number: int) -> "Group":
    """Returns the group of one worker's places alone."""
    places = tuple(self.places[rank] for rank in self.workers[number])
    return Group(places, (tuple(range(len(places))),), (self.hosts[number],),
                 self.rotation)

  def across(self, places: Sequence[str], rotation: int) -> "Group":
    """Returns the group of one place per worker, in the order of workers."""
    return Group(tuple(places), _one_each(len(places)), self.hosts, rotation)

  def at_rotation(self, rotation: int) -> "Group":
    """Returns the same group with another rotation."""
    return Group(self.places, self.workers, self.hosts, rotation)

  def rotated(self, ranks: Sequence[int] | None = None) -> list[int]:
    """Returns ranks, all of them if None, rotated by the rotation."""
    ranks = range(len(self.places)) if ranks is None else ranks
    start = self.rotation % len(ranks)
    return [*ranks[start:], *ranks[:start]]

  def by_rank(self, ranks: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Returns values, of which `ranks` says whose they are, in their order."""
    return [value for _, value in sorted(zip(ranks, values, strict=True),
                                         key=lambda pair: pair[0])]


@functools.lru_cache(maxsize=16)  # There may be thousands of workers.
def _one_each(count: int) -> tuple[tuple[int, ...], ...]:
  return tuple((w,) for w in range(count))


def part_lengths(length: int, count: int) -> list[int]:
  """Returns the lengths of `count` near-equal parts, the longer ones first."""
  short, longer = divmod(length, count)
  return [short + 1] * longer + [short] * (count - longer)
