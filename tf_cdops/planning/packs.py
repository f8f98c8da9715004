"""Divides tensors into packs, each of which travels as one."""

import math
from collections.abc import Callable, Iterable, Sequence

from tf_cdops.planning import spec as spec_lib


def divide(positions: Sequence[int], num_bytes: Sequence[int | None],
           pack: bool, packing: spec_lib.Packing) -> Iterable[list[int]]:
  """Yields the tensors of each pack; one alone is a pack of one.

  Args:
    positions: of tensors that may share a pack.
    num_bytes: of all tensors; one of unknown size stays alone.
    pack: whether they are to be packed, if `packing` doesn't say.
    packing: what the user says.
  """
  known = [i for i in positions if num_bytes[i] is not None]
  yield from ([i] for i in positions if num_bytes[i] is None)
  weight = lambda i: num_bytes[i] or 0
  if packing.num_packs:
    total = sum(map(weight, known))
    count = max(packing.num_packs, -(-total // packing.cap))
    for run in _near_equal(known, weight, count):
      yield from _capped(run, weight, packing.cap, len(run))
  elif packing.wanted or pack:
    limit = packing.small_max_bytes if packing.wanted else math.inf
    group = (packing.small_max_group or 1) if packing.wanted else len(known)
    small = [i for i in known if weight(i) <= limit]
    yield from _capped(small, weight, packing.cap, group)
    yield from ([i] for i in known if weight(i) > limit)
  else:
    yield from ([i] for i in known)


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
    if pack and (load + weight(i) > cap or len(pack) == group):
      yield pack
      pack, load = [], 0
    pack.append(i)
    load += weight(i)
  if pack:
    yield pack
