"""What a plan uses of the links, and how long that may take."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tf_cdops import planning
from tf_cdops import spec as spec_lib
from tf_cdops import topology as topology_lib
from tf_cdops.explaining import cost
from tf_cdops.explaining import counting
from tf_cdops.explaining import usage as usage_lib
from tf_cdops.algorithms import hierarchical
from tf_cdops.algorithms import requirements

# An explanation is of devices that needn't be here, so it takes for granted
# what only a TensorFlow with these devices could tell.
MACHINE = requirements.Machine(has_kernel=lambda op, kind: True,
                                has_virtual_gpus=lambda: False)
# Transfers up to which all of a plan's buckets are added up; beyond, some
# stand for others of about their size. This keeps thousands of devices quick.
# It is the same for what is explained and what it is compared with, so that a
# spec has the same numbers wherever it is shown.
_WORK, _WORK_OF_ONE, _LEAST_KINDS = 500_000, 2_000, 8
# The most bytes of a tensor; beyond, a number was mistyped.
MOST_BYTES = 1 << 40


@dataclasses.dataclass(frozen=True)
class Part:
  """Buckets that go the same way for the same reason.

  Attributes:
    algorithm: what sums them.
    shards: in how many parts.
    why: the reason.
    packed: whether tensors are joined in them.
    buckets: how many there are.
    tensors: the positions of their tensors.
    num_bytes: their size together, on one replica.
    smallest: the least bytes in a bucket.
    largest: the most.
    steps: transfers on the longest chain of one bucket.
    inside: bytes moved between devices of a worker, by all buckets.
    across: bytes moved between workers, by all buckets.
    time: predicted, of all buckets.
    basis: one of waves.BASES: how sure the numbers are.
  """

  algorithm: str
  shards: int
  why: str
  packed: bool
  buckets: int
  tensors: tuple[int, ...]
  num_bytes: int
  smallest: int
  largest: int
  steps: int
  inside: int
  across: int
  time: cost.Time
  basis: str


@dataclasses.dataclass(frozen=True)
class Way:
  """What the same tensors cost by some spec."""

  spec: str
  steps: int
  inside: int
  across: int
  time: cost.Time
  basis: str


@dataclasses.dataclass(frozen=True)
class _Kind:
  """Buckets that use the same: of one size and turn."""

  num_bytes: int
  itemsize: int
  turn: int


@dataclasses.dataclass(frozen=True)
class _Sum:
  """What buckets of one way use together.

  Attributes:
    used: by all.
    steps: the most of one.
    chain: the phases of the largest bucket.
  """

  used: usage_lib.Usage
  steps: int
  chain: tuple[usage_lib.Usage, ...]


# How many buckets there are of each kind, the largest first.
_Kinds = dict[_Kind, int]


class PlanCosts:
  """Plans for some tensors and devices, and adds up what plans use."""

  def __init__(self, topology: topology_lib.Topology, network: cost.Network,
               sizes: Sequence[planning.TensorSize],
               packing: planning.Packing | None = None):
    self.topology, self.network = topology, network
    self._sizes, self._packing = sizes, packing
    self._period = counting.period(topology)
    self._known: dict[tuple[str, int, _Kind], usage_lib.Usage] = {}

  def plan(self, spec: spec_lib.AllReduceSpec) -> planning.Plan:
    return planning.plan(self._sizes, self.topology, spec, self._packing,
                         requirements.nccl_can_run(self.topology, MACHINE))

  def total(self, spec: str, plan: planning.Plan) -> Way:
    """Returns what a plan costs."""
    alike = _grouped(plan.buckets, lambda b: (b.algorithm, b.shards))
    return self._way(spec, [
        self._sum(name, shards, self._kinds(buckets), len(alike))
        for (name, shards), buckets in alike.items()])

  def totals(self, names: Iterable[str]) -> list[Way]:
    """Returns what each algorithm costs if all tensors go by it.

    The buckets are the same for all of them, so one plan will do.
    """
    plan = self.plan(spec_lib.parse("ps"))
    kinds = self._kinds(plan.buckets)
    return [self._way(name, [self._sum(name, 1, kinds, 1)] if kinds else [])
            for name in names]

  def parts(self, plan: planning.Plan,
            why: Callable[[planning.Bucket], str]) -> tuple[Part, ...]:
    """Returns a plan's parts, in the order of buckets."""
    alike = _grouped(plan.buckets, lambda b: (
        b.algorithm, b.shards, why(b), len(b.tensors) > 1))
    return tuple(self._part(reason, buckets, len(alike))
                 for (_, _, reason, _), buckets in alike.items())

  def _part(self, why: str, buckets: Sequence[planning.Bucket],
            parts: int) -> Part:
    name, shards = buckets[0].algorithm, buckets[0].shards
    found = self._sum(name, shards, self._kinds(buckets), parts)
    sizes = [bucket.num_bytes or 0 for bucket in buckets]
    return Part(
        name, shards, why, len(buckets[0].tensors) > 1, len(buckets),
        tuple(sorted(i for bucket in buckets for i in bucket.tensors)),
        sum(sizes), min(sizes), max(sizes), found.steps, found.used.inside,
        found.used.across,
        cost.predict(found.used, self.network, [found.chain]),
        found.used.basis)

  def _way(self, spec: str, sums: Sequence[_Sum]) -> Way:
    used = functools.reduce(usage_lib.Usage.after, [s.used for s in sums],
                            usage_lib.none(self.topology))
    return Way(spec, used.steps, used.inside, used.across,
               cost.predict(used, self.network, [s.chain for s in sums]),
               used.basis)

  def _kinds(self, buckets: Sequence[planning.Bucket]) -> _Kinds:
    counts = collections.Counter(
        (bucket.num_bytes or 0,
         planning.ITEMSIZES[self._sizes[bucket.tensors[0]].dtype],
         bucket.turn % self._period) for bucket in buckets)
    return {_Kind(*key): counts[key] for key in sorted(counts, reverse=True)}

  def _sum(self, name: str, shards: int, kinds: _Kinds, ways: int) -> _Sum:
    """Adds up what buckets use; `ways` is among how many work is shared.

    If they are many, half of the work goes to the largest, and the other half
    to some of the rest, each of which stands for its neighbours in size.
    """
    rows = list(kinds)
    each = self._of(name, shards, rows[0]).links + _WORK_OF_ONE
    most = max(_LEAST_KINDS, _WORK // ways // each)
    exact = len(rows) if len(rows) <= most else most // 2
    known = [self._of(name, shards, kind).times(kinds[kind], kinds[kind])
             for kind in rows[:exact]]
    edges = np.linspace(exact, len(rows), most - most // 2 + 1).astype(int)
    stand_ins = [
        self._stand_in(name, shards, rows[start:stop], kinds)
        for start, stop in itertools.pairwise(edges.tolist()) if start < stop]
    used = usage_lib.estimate(known, stand_ins, usage_lib.Usage.after)
    steps = max(self._of(name, shards, kind).steps for kind in rows[:exact])
    return _Sum(used, steps, counting.phases_of(
        hierarchical.find(name), self.topology,
        rows[0].num_bytes // rows[0].itemsize, rows[0].itemsize, shards,
        rows[0].turn))

  def _stand_in(self, name: str, shards: int, rows: Sequence[_Kind],
                kinds: _Kinds) -> usage_lib.Usage:
    one = rows[len(rows) // 2]
    count = sum(kinds[kind] for kind in rows)
    num_bytes = sum(kind.num_bytes * kinds[kind] for kind in rows)
    return self._of(name, shards, one).times(
        count, num_bytes / one.num_bytes if one.num_bytes else 0,
        "extrapolated")

  def _of(self, name: str, shards: int, kind: _Kind) -> usage_lib.Usage:
    key = name, shards, kind
    if key not in self._known:
      self._known[key] = counting.of_all_reduce(
          hierarchical.find(name), self.topology,
          kind.num_bytes // kind.itemsize, kind.itemsize, shards, kind.turn)
    return self._known[key]


def _grouped(buckets: Iterable[planning.Bucket],
             key: Callable[[planning.Bucket], tuple[Any, ...]]
             ) -> dict[tuple[Any, ...], list[planning.Bucket]]:
  alike = collections.defaultdict(list)
  for bucket in buckets:
    alike[key(bucket)].append(bucket)
  return alike
