"""A plan: which buckets are sent, in which order; and how one is made."""

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.planning import auto_rules
from tf_cdops.planning import buckets as buckets_lib
from tf_cdops.planning import packs as packs_lib
from tf_cdops.planning import rotations as rotations_lib

Packing = packs_lib.Packing
TensorSize = buckets_lib.TensorSize
Bucket = buckets_lib.Bucket


@dataclasses.dataclass(frozen=True)
class Plan:
  """The buckets, in the order in which they are sent.

  Attributes:
    buckets: what travels together.
    rules: those of "auto", if it chose.
    is_pinned: whether it is one of the spec's file.
    wire: how messages of those buckets are encoded that are wired.
  """

  buckets: tuple[Bucket, ...]
  rules: tuple[auto_rules.Rule, ...] = ()
  is_pinned: bool = False
  wire: registry.Wire | None = None

  def algorithm(self, bucket: Bucket) -> registry.Algorithm:
    """Returns what sums a bucket, with its shards and its wire."""
    algorithm = registry.lookup(bucket.algorithm, bucket.shards)
    if not bucket.wired:
      return algorithm
    assert self.wire is not None
    return registry.wired(algorithm, self.wire)

  def __str__(self) -> str:
    return "\n".join(
        f"{b.algorithm}#{b.shards}: tensors {', '.join(map(str, b.tensors))} "
        f"({'unknown' if b.num_bytes is None else b.num_bytes} bytes)"
        for b in self.buckets)


@dataclasses.dataclass(frozen=True)
class Choice:
  """How tensors travel; those of one dtype and choice may share a pack."""

  algorithm: str
  shards: int = 1
  pack: bool = False
  wired: bool = False

  def __str__(self) -> str:
    shards = f"#{self.shards}" if self.shards > 1 else ""
    return f"{self.algorithm}{shards}{', packed' if self.pack else ''}"


def all_reduces(plan: Plan, sizes: Sequence[TensorSize],
                buckets: Iterable[Bucket] | None = None
                ) -> list[cost.AllReduce]:
  """Returns a plan's buckets, or some of them, as the cost model takes them."""
  found = []
  # Looked up for each bucket, they take more than half of the time.
  algorithms: dict[tuple[str, int, bool], registry.Algorithm] = {}
  for bucket in plan.buckets if buckets is None else buckets:
    key = bucket.algorithm, bucket.shards, bucket.wired
    if key not in algorithms:
      algorithms[key] = plan.algorithm(bucket)
    itemsize = buckets_lib.ITEMSIZES[sizes[bucket.tensors[0]].dtype]
    found.append(cost.AllReduce(
        algorithms[key], (bucket.num_bytes or 0) // itemsize, itemsize,
        bucket.rotation, len(bucket.tensors) > 1))
  return found


def make_buckets(
    sizes: Sequence[TensorSize], topology: topology_lib.Topology,
    packing: Packing, lines: Sequence[tuple[int | None, Choice]],
    wire: registry.Wire | None = None,
    cuts: Sequence[int] = ()) -> tuple[Bucket, ...]:
  """Divides tensors among lines, and each line's into buckets.

  Args:
    sizes: the tensors.
    topology: the devices.
    packing: what the user says is joined.
    lines: limits in bytes, but of the last, and how tensors up to there go.
    wire: how messages are encoded, of lines that are wired.
    cuts: positions before which a line's packs end, if the line says to pack.
  """
  limits = [limit or 0 for limit, _ in lines[:-1]]
  choices = [choice for _, choice in lines]
  if packing.wanted:  # The user's wish goes before a rule's.
    choices = [dataclasses.replace(choice, pack=False) for choice in choices]
  alike: dict[tuple[int, str], list[int]] = collections.defaultdict(list)
  all_bytes = [size.num_bytes for size in sizes]
  for position, (size, num_bytes) in enumerate(
      zip(sizes, all_bytes, strict=True)):
    line = (len(limits) if num_bytes is None
            else bisect.bisect_left(limits, num_bytes))
    alike[line, size.dtype].append(position)
  # Two lines may say the same.
  together: dict[tuple[Choice, str], list[int]] = collections.defaultdict(list)
  for (line, dtype), positions in alike.items():
    together[choices[line], dtype] += positions
  # Those that rotate among as many share the balance.
  balancers: dict[int, rotations_lib.Rotations] = {}
  packs: list[tuple[Sequence[int], Choice, rotations_lib.Rotations]] = []
  for (choice, _), positions in together.items():
    count = rotations_lib.count(topology, "/" in choice.algorithm)
    balancer = balancers.setdefault(count, rotations_lib.Rotations(count))
    for run in _runs(sorted(positions), cuts if choice.pack else ()):
      packs += [(pack, choice, balancer) for pack in packs_lib.divide(
          run, all_bytes, choice.pack, packing)]
  packs.sort(key=lambda item: -item[0][-1])
  buckets = []
  largest = max((num_bytes or 0 for num_bytes in all_bytes), default=0)
  for pack, choice, balancer in packs:
    total = all_bytes[pack[0]] if len(pack) == 1 else (
        buckets_lib.bytes_together([all_bytes[i] for i in pack]))
    # A tensor whose shape isn't known travels unsharded.
    shards = 1 if total is None else choice.shards
    rotation = balancer.next(shards, largest if total is None else total)
    buckets.append(Bucket(
        tuple(pack), choice.algorithm, shards, rotation, total,
        choice.wired and wire is not None
        and sizes[pack[0]].dtype in wire.codec.dtypes))
  return tuple(buckets)


def _runs(positions: Sequence[int],
          cuts: Sequence[int]) -> Iterable[Sequence[int]]:
  """Yields positions up to each cut, and the rest; nothing that is empty."""
  ends = [bisect.bisect_left(positions, cut) for cut in cuts]
  for start, end in itertools.pairwise((0, *ends, len(positions))):
    if start < end:
      yield positions[start:end]


