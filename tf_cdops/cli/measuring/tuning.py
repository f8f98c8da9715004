"""Decides what to recommend from what was measured; measures nothing itself.

Tensors are divided into classes by size. Each class finds its best way to
travel, the ways are put together into one spec, and that spec is recommended
only if, on the whole load, it is surely quicker than "auto".
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from tf_cdops import registry
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

# The classes' upper ends in bytes; round numbers make readable specs.
_EDGES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
_PACKED_UP_TO = 1 << 20  # Packing copies; large tensors never gain from it.
_SHARDED_FROM = 256 << 10  # A shard has its costs, too.
_SHARDS = (1, 2, 4)
_HOPELESS = 2.0  # So many times the best's time, and there is no way back.
# A gain below this isn't worth a setting that someone must look after.
MARGIN = 0.05
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class SizeClass:
  """Tensors of like size.

  Attributes:
    limit: the most bytes that a tensor of this class has.
    last: whether larger tensors belong here too: there is no class above.
    tensors: which ones, as positions in the load.
  """

  limit: int
  last: bool
  tensors: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Setting:
  """A spec, its packing and its wire, which a user can apply."""

  spec: spec_lib.AllReduceSpec
  packing: planner.Packing
  wire: registry.Wire | None = None


@dataclasses.dataclass(frozen=True)
class Verdict:
  """Whether a choice beats another, from pairs of steps side by side.

  Attributes:
    better: whether it surely does, by more than the margin.
    ratio: the median of its time over the other's; below 1 is quicker.
    low: where the true median surely begins; None after too few pairs.
    high: where it surely ends, likewise.
    pairs: how many were compared.
  """

  better: bool
  ratio: float
  low: float | None
  high: float | None
  pairs: int


def size_classes(num_bytes: Sequence[int]) -> tuple[SizeClass, ...]:
  """Divides tensors by size; no class is empty."""
  largest = max(num_bytes)
  edges = [edge for edge in _EDGES if edge < largest]
  classes, below = [], -1
  for edge in (*edges, largest):
    members = tuple(i for i, n in enumerate(num_bytes) if below < n <= edge)
    if members:
      classes.append(SizeClass(edge, edge == largest, members))
    below = edge
  return tuple(classes)


def candidates(size_class: SizeClass,
               algorithms: Iterable[str]) -> tuple[planner.Choice, ...]:
  """Returns the ways that a class may travel, the plainest first."""
  shards = [n for n in _SHARDS if n == 1 or size_class.limit >= _SHARDED_FROM]
  packs = (False, True) if may_pack(size_class) else (False,)
  names = list(algorithms)
  return tuple(planner.Choice(name, n, pack)
               for n in shards for name in names for pack in packs)


def may_pack(size_class: SizeClass) -> bool:
  return len(size_class.tensors) > 1 and size_class.limit <= _PACKED_UP_TO


def hopeless(seconds: Sequence[float], best: float) -> bool:
  """Whether even the quickest run is far behind the best one's."""
  return min(seconds) > _HOPELESS * best


def survivors(seconds: Mapping[planner.Choice, Sequence[float]]
              ) -> list[planner.Choice]:
  """Returns the better half, but two at least, the quickest first."""
  ranked = sorted(seconds, key=lambda c: statistics.median(seconds[c]))
  best = statistics.median(seconds[ranked[0]])
  half = ranked[:max(2, math.ceil(len(ranked) / 2))]
  return [c for c in half if not hopeless(seconds[c], best)]


def compose(found: Mapping[SizeClass, Mapping[planner.Choice, float]]
            ) -> Setting:
  """Puts the classes' best ways together.

  What is packed is a matter of size alone: every tensor up to some limit. So
  each class's end is tried as that limit, and the least sum of times wins.

  Args:
    found: for each class, smallest first, each way's time.

  Returns:
    The spec, lines that say the same merged, and what to pack.
  """
  classes = list(found)
  plans = []
  for packed in range(len(classes) + 1):
    best = [_best(c, found[c], i < packed) for i, c in enumerate(classes)]
    ways = [way for way in best if way is not None]
    if len(ways) == len(classes):
      total = sum(found[c][way] for c, way in zip(classes, ways, strict=True))
      plans.append((total, packed, ways))
  _, packed, ways = min(plans, key=lambda plan: plan[:2])
  lines: list[tuple[str, int, int]] = []
  for size_class, way in zip(classes, ways, strict=True):
    if lines and lines[-1][:2] == (way.algorithm, way.shards):
      lines.pop()
    limit = spec_lib.UNLIMITED if size_class.last else size_class.limit
    lines.append((way.algorithm, way.shards, limit))
  tensors = sum(len(size_class.tensors) for size_class in classes)
  packing = (planner.Packing(small_max_bytes=classes[packed - 1].limit,
                             small_max_group=tensors)
             if any(way.pack for way in ways) else planner.Packing())
  return Setting(planner.parse_all_reduce_spec(lines), packing)


def judge(other: Sequence[float], chosen: Sequence[float]) -> Verdict:
  """Compares steps that ran in pairs, one of each right after the other."""
  ratios = [c / o for o, c in zip(other, chosen, strict=True)]
  ratio, between = statistics.median(ratios), median_interval(ratios)
  if between is None:
    return Verdict(False, ratio, None, None, len(ratios))
  low, high = between
  return Verdict(ratio <= 1 - MARGIN and high < 1, ratio, low, high,
                 len(ratios))


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
  """Returns between which samples the true median surely is.

  The interval is that of the sign test: half of all values are below the true
  median, so the number below it in a sample is that of a fair coin's heads.
  Nothing is assumed of how they are spread. None if there are too few to be
  sure of anything: fewer than six.
  """
  count, rank, tail = len(samples), 0, 0.0
  while rank < count / 2:
    tail += math.comb(count, rank) / 2**count
    if 2 * tail > 1 - _CONFIDENCE:
      break
    rank += 1
  ranked = sorted(samples)
  return (ranked[rank - 1], ranked[-rank]) if rank else None


def _best(size_class: SizeClass, times: Mapping[planner.Choice, float],
          pack: bool) -> planner.Choice | None:
  """Returns the quickest way that packs, or doesn't; None if there is none."""
  if pack and size_class.limit > _PACKED_UP_TO:
    return None
  joined = pack and len(size_class.tensors) > 1  # One is the same either way.
  return min((c for c in times if c.pack == joined), key=times.__getitem__,
             default=None)
