"""Predicts what a batch of all-reduces costs on given devices and links."""

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import network as network_lib
from tf_cdops.cost import usage as usage_lib

Time = network_lib.Time
Usage = usage_lib.Usage
# Transfers up to which a batch is added up one by one; beyond, the largest
# are, and the rest is taken to be like them. This keeps thousands of devices
# quick.
_WORK, _WORK_OF_ONE, _LEAST = 500_000, 2_000, 8
# Elements for each device from which all parts of an all-reduce have about one
# size, so that its loads are in proportion to its bytes.
EVEN = 64
# How many devices' loads are kept of what was counted so: about 5 MB.
_MOST_KEPT = 1 << 17
# While a worker reads and adds what has come, its cable is idle, unless others
# are under way: on 4 hosts at 500 Mbit/s one tensor of 64 MB took 1.15 times as
# long as four of 16 MB.
IDLE = 0.15


class AllReduce(NamedTuple):
  """One all-reduce of a batch."""

  algorithm: registry.Algorithm
  elements: int
  itemsize: int
  rotation: int = 0
  packed: bool = False

  @property
  def num_bytes(self) -> int:
    return self.elements * self.itemsize


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a batch costs.

  Attributes:
    usage: of the links, by all of it.
    most_steps: of one all-reduce.
    time: predicted.
  """

  usage: Usage
  most_steps: int
  time: Time


@dataclasses.dataclass(frozen=True)
class _Known:
  """What was counted: of all-reduces whole, and by phase."""

  usages: dict[AllReduce, Sequence[Usage]] = dataclasses.field(
      default_factory=dict)
  phases: dict[AllReduce, list[Usage]] = dataclasses.field(
      default_factory=dict)


class Model:
  """Costs on one topology and network; it remembers what it has counted."""

  def __init__(self, topology: topology_lib.Topology,
               network: network_lib.Network | None = None, work: int = _WORK,
               in_proportion: bool = False):
    """Initializes.

    Args:
      topology: the devices.
      network: the links; those that are common for such devices if None.
      work: how many transfers are looked at, to tell what a batch costs.
      in_proportion: whether large all-reduces are taken to use the links in
        proportion to their bytes, not to the last element: then those of an
        algorithm and rotation are counted once, for all plans, and kept for
        later batches on the same devices.
    """
    self.topology, self._work = topology, work
    self._even = EVEN * len(topology.devices) if in_proportion else 0
    self.network = network or network_lib.Network.common(topology)
    # Rotations after which the roles are the same again: in all algorithms, and
    # in pairs, where devices of a worker take turns, and workers.
    pairs = math.lcm(len(topology.workers), *map(len, topology.workers))
    self._periods = math.lcm(pairs, len(topology.devices)), pairs
    self._known = _kept(topology) if in_proportion else _Known()

  def knows(self, algorithm: registry.Algorithm) -> bool:
    """Whether the algorithm's cost on these devices can be told."""
    return bool(algorithm.traffic) or (
        len(self.topology.devices) <= usage_lib.MOST_TRACED)

  def cost(self, batch: Iterable[AllReduce]) -> Cost:
    """Returns what all-reduces cost together."""
    counts = collections.Counter(
        one if one.rotation < self._periods[0]
        else one._replace(rotation=one.rotation % self._periods[0])
        for one in batch if one.elements and len(self.topology.devices) > 1)
    alike = collections.defaultdict(list)
    for one in sorted(counts, key=lambda one: (-one.num_bytes, one.rotation)):
      alike[one.algorithm].append(one)
    used = Usage.nothing(self.topology)
    for rows in alike.values():
      used += self._sum(rows, counts, len(alike))
    longest = [rows[0] for rows in alike.values()]
    alone = [self._alone(one) for one in longest]
    # They run side by side: only the longest chain is waited for.
    latency = max((time.latency for time in alone), default=0.0)
    packing = self.packing_seconds(sum(one.num_bytes * count
                                for one, count in counts.items()
                                if one.packed))
    together = dataclasses.replace(self._together(used), latency=latency)
    time = max([together, *alone], key=lambda time: time.total)
    return Cost(used, max((sum(phase.steps for phase in self.phases(one)[0])
                           for one in longest), default=0),
                dataclasses.replace(time, overhead=time.overhead + packing))

  def _sum(self, rows: Sequence[AllReduce],
           counts: collections.Counter[AllReduce], ways: int) -> Usage:
    """Adds up all-reduces by one algorithm, the largest first."""
    each = sum(part.links for part in self._usage(rows[0])[0]) + _WORK_OF_ONE
    limit = max(_LEAST, self._work // ways // each)
    if len(rows) <= limit:
      return self._weighted(
          (one, counts[one], counts[one] * one.num_bytes) for one in rows)
    # Those of one rotation load the same devices: the largest stands for all.
    alike = collections.defaultdict(list)
    for one in rows:
      alike[one.rotation].append(one)
    weights = {rotation: sum(counts[one] * one.num_bytes for one in some)
               for rotation, some in alike.items()}
    # Of those with about one weight, the first: plans that are compared then
    # have the same ones.
    heaviest = sorted(alike, key=lambda rotation: (
        -round(4 * math.log2(weights[rotation])), rotation))
    like_one = lambda one, rotations: (
        one, sum(counts[other] for r in rotations for other in alike[r]),
        sum(weights[r] for r in rotations))
    known = [like_one(alike[r][0], [r]) for r in heaviest[:limit]]
    used = dataclasses.replace(self._weighted(known), basis="extrapolated")
    rest = heaviest[limit:]
    if not rest:
      return used
    others = self._weighted([like_one(alike[heaviest[limit - 1]][0], rest)])
    if len({self._usage(one)[0][0].busiest for one, _, _ in known}) == 1:
      return used + others  # Roles don't rotate.
    # They do, so the rest's busiest are other devices each time: each device
    # gets what most get, and no less than all have in the mean.
    mean = (used + others).with_even_loads(usage_lib.mean)
    most = used + others.with_even_loads(usage_lib.least_mean)
    return dataclasses.replace(
        most, device_bytes=np.maximum(most.device_bytes, mean.device_bytes),
        worker_bytes=np.maximum(most.worker_bytes, mean.worker_bytes))

  def _weighted(self, rows: Iterable[tuple[AllReduce, int, float]]) -> Usage:
    """Adds up so many all-reduces like each, of so many bytes together."""
    weights: dict[Usage, tuple[int, float]] = collections.defaultdict(
        lambda: (0, 0.0))
    for one, times, num_bytes in rows:
      parts, size = self._usage(one)
      for part in parts:
        often, most = weights[part]
        weights[part] = often + times, most + size * num_bytes / one.num_bytes
    return Usage.weighted(weights)

  def _usage(self, one: AllReduce) -> tuple[Sequence[Usage], float]:
    """Returns what was counted for an all-reduce, and how much larger it is.

    In proportion that is its shards, as one by one they are like those of
    other rotations: counted for each, they took half of a cold plan's time.
    """
    counted, size = self._counted(one)
    parts = self._known.usages.get(counted)
    if parts is None:
      algorithm, elements, _, first, _ = counted
      if algorithm.part and elements == self._even:
        parts = [self._usage(counted._replace(
            algorithm=algorithm.part, rotation=rotation % self._period(
                algorithm)))[0][0]
                 for rotation in range(first, first + algorithm.shards)]
      else:
        parts = [usage_lib.count(algorithm, self.topology, elements,
                                 counted.itemsize, first)]
      self._known.usages[counted] = parts
    return parts, size / len(parts)

  def _counted(self, one: AllReduce) -> tuple[AllReduce, float]:
    """Returns what is counted for an all-reduce, and how much larger it is."""
    if not self._even or one.elements < self._even:
      return one._replace(packed=False), 1
    # Where each has as many shards to do, it doesn't matter who has the first.
    rotation = one.rotation if (
        one.algorithm.shards % self._period(one.algorithm)) else 0
    return (one._replace(packed=False, elements=self._even, rotation=rotation),
            one.elements / self._even)

  def _period(self, algorithm: registry.Algorithm) -> int:
    return self._periods[algorithm.pair is not None]

  def _together(self, used: Usage, size: float = 1) -> Time:
    """Returns the time of a usage with so many times the bytes."""
    inside, across = self.network.inside, self.network.across
    handling = np.array([inside.message_seconds, across.message_seconds])
    return Time(
        self._latency(used),
        float(used.inside_bytes(self.topology, self.network.shared_inside)
              .max()) * size / inside.bytes_per_second,
        float(used.worker_bytes.max()) * size / across.bytes_per_second,
        float((handling @ used.messages + used.coded * (
            size / self.network.copied_bytes_per_second)).max()))

  def _latency(self, used: Usage) -> float:
    return float(used.latencies @ [self.network.inside.latency_seconds,
                                   self.network.across.latency_seconds])

  def packing_seconds(self, num_bytes: int) -> float:
    """Seconds in which the busiest worker copies packs, in and out."""
    devices = max(map(len, self.topology.workers))
    return 2 * devices * num_bytes / self.network.copied_bytes_per_second

  def _alone(self, one: AllReduce) -> Time:
    """How long one takes by itself."""
    time = self.times(*self.phases(one))
    return dataclasses.replace(
        time, across=time.across * (1 + IDLE / one.algorithm.shards))

  def phases(self, one: AllReduce) -> tuple[Sequence[Usage], float]:
    """Returns what was counted for its phases, and how much larger it is."""
    counted, size = self._counted(one)
    if counted.elements == self._even and self.is_alike(one.algorithm):
      counted = counted._replace(rotation=0)
    phases = self._known.phases.get(counted)
    if phases is None:
      phases = usage_lib.count_by_phase(
          counted.algorithm, self.topology, counted.elements,
          counted.itemsize, counted.rotation)
      self._known.phases[counted] = phases
    return phases, size

  def is_alike(self, algorithm: registry.Algorithm) -> bool:
    """Whether even parts take as long, whoever has which role.

    Elsewhere not all rotations cross between workers as often.
    """
    sizes = set(map(len, self.topology.workers))
    return len(sizes) == 1 and (algorithm.pair is not None or sizes == {1})

  def times(self, phases: Iterable[Usage], size: float = 1) -> Time:
    """Returns how long phases take, each of which waits for the last."""
    latency = inside = across = overhead = 0.0
    for phase in phases:
      time = self._together(phase, size)
      latency += time.latency
      overhead += time.overhead
      if time.inside >= time.across:
        inside += time.inside
      else:
        across += time.across
    return Time(latency, inside, across, overhead)


def _kept(topology: topology_lib.Topology) -> _Known:
  """Returns what was counted on these devices; anew, when it is too much."""
  known = _kept_for_ever(topology)
  kept = len(known.usages) + sum(map(len, known.phases.values()))
  if kept * len(topology.devices) > _MOST_KEPT:
    known.usages.clear()
    known.phases.clear()
  return known


@functools.lru_cache(maxsize=4)
def _kept_for_ever(topology: topology_lib.Topology) -> _Known:
  del topology  # Each has its own.
  return _Known()
