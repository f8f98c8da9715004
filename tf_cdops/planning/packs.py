"""Packs, each of which travels as one: which are wanted, and of what."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import cast

# A pack is a copy, so its size is what packing costs in memory.
DEFAULT_CAP = 64 << 20


@dataclasses.dataclass(frozen=True)
class Packing:
  """Which tensors are joined before they travel.

  Attributes:
    num_packs: that many packs, or 0 for none.
    small_max_bytes: where num_packs is 0, tensors up to this size are packed.
    small_max_group: at most this many of those in a pack; 0 for no pack.
    cap: the most bytes in a pack; a larger tensor stays alone.
    tail: with num_packs, the first tensors, up to so many bytes, are one more
      pack. Backpropagation makes their gradients last, so nothing is left to
      be computed while they travel.
  """

  num_packs: int = 0
  small_max_bytes: int = 0
  small_max_group: int = 10
  cap: int = DEFAULT_CAP
  tail: int = 0

  @property
  def wanted(self) -> bool:
    """Whether the user said which, if only that none are."""
    return (self.num_packs > 0 or self.small_max_bytes > 0
            or self.small_max_group == 0)

  def arguments(self) -> dict[str, int]:
    """Returns it by the names of the classes' arguments, and of a file."""
    return {name: getattr(self, field) for name, field in ARGUMENTS.items()}


# The field, by the name of an argument and of a file's key.
ARGUMENTS = {"num_packs": "num_packs",
             "agg_small_grads_max_bytes": "small_max_bytes",
             "agg_small_grads_max_group": "small_max_group"}


def divide(positions: Sequence[int], num_bytes: Sequence[int | None],
           pack: bool, packing: Packing) -> Iterable[list[int]]:
  """Yields the tensors of each pack; one alone is a pack of one.

  Args:
    positions: of tensors that may share a pack.
    num_bytes: of all tensors; one of unknown size stays alone.
    pack: whether they are to be packed, if `packing` doesn't say.
    packing: what the user says.
  """
  if not pack and not packing.wanted:
    yield from ([i] for i in positions)
    return
  known = [i for i in positions if num_bytes[i] is not None]
  yield from ([i] for i in positions if num_bytes[i] is None)
  # Called for each tensor of each plan that is compared.
  weight = cast(Callable[[int], int], num_bytes.__getitem__)
  if packing.num_packs:
    if tail := _first(known, weight, packing.tail):
      yield tail
      known = known[len(tail):]
    total = sum(map(weight, known))
    count = max(packing.num_packs, -(-total // packing.cap))
    for run in _near_equal(known, weight, count):
      yield from _capped(run, weight, packing.cap, len(run))
  else:
    limit = packing.small_max_bytes if packing.wanted else math.inf
    group = (packing.small_max_group or 1) if packing.wanted else len(known)
    small = [i for i in known if weight(i) <= limit]
    yield from _capped(small, weight, packing.cap, group)
    yield from ([i] for i in known if weight(i) > limit)


def _first(positions: Sequence[int], weight: Callable[[int], int],
           most: int) -> list[int]:
  """Returns the first of a row that have at most so many bytes together."""
  together = itertools.accumulate(map(weight, positions))
  return [i for i, load in zip(positions, together, strict=True)
          if load <= most and most]


def _near_equal(positions: Sequence[int], weight: Callable[[int], int],
                count: int) -> Iterable[list[int]]:
  """Cuts a row into `count` runs of near-equal weight, none of them empty."""
  rest, heavy = list(positions), sum(map(weight, positions))
  while rest:
    target = heavy / max(count, 1)
    pack, load = [rest[0]], weight(rest[0])
    for i in rest[1:]:
      left = len(rest) - len(pack)
      if count > 1 and (left < count or load + weight(i) / 2 > target):
        break
      pack.append(i)
      load += weight(i)
    yield pack
    rest, heavy, count = rest[len(pack):], heavy - load, count - 1


def _capped(positions: Sequence[int], weight: Callable[[int], int], cap: int,
            group: int) -> Iterable[list[int]]:
  """Cuts a row into runs of at most `cap` bytes and `group` tensors."""
  pack: list[int] = []
  load = 0
  for i in positions:
    load += (own := weight(i))
    if pack and (load > cap or len(pack) == group):
      yield pack
      pack, load = [], own
    pack.append(i)
  if pack:
    yield pack
