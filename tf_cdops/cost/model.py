"""Predicts what a batch of all-reduces costs on given devices and links."""

import collections
import dataclasses
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


class AllReduce(NamedTuple):
  """One all-reduce of a batch."""

  algorithm: registry.Algorithm
  elements: int
  itemsize: int
  rotation: int = 0

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


class Model:
  """Costs on one topology and network; it remembers what it has counted."""

  def __init__(self, topology: topology_lib.Topology,
               network: network_lib.Network | None = None):
    self.topology = topology
    self.network = network or network_lib.Network.common(topology)
    # Rotations after which the roles are the same again.
    self._period = math.lcm(
        len(topology.devices), len(topology.workers),
        *{len(ranks) for ranks in topology.workers})
    self._known: dict[AllReduce, Usage] = {}

  def knows(self, algorithm: registry.Algorithm) -> bool:
    """Whether the algorithm's cost on these devices can be told."""
    return bool(algorithm.traffic) or (
        len(self.topology.devices) <= usage_lib.MOST_TRACED)

  def cost(self, batch: Iterable[AllReduce]) -> Cost:
    """Returns what all-reduces cost together."""
    counts = collections.Counter(
        one._replace(rotation=one.rotation % self._period)
        for one in batch if one.elements)
    alike = collections.defaultdict(list)
    for one in sorted(counts, key=lambda one: (-one.num_bytes, one.rotation)):
      alike[one.algorithm].append(one)
    used, most_steps = Usage.nothing(self.topology), 0
    alone = []
    for rows in alike.values():
      used += self._sum(rows, counts, len(alike))
      most_steps = max(most_steps, self._usage(rows[0]).steps)
      alone.append(self._alone(rows[0]))
    return Cost(used, most_steps, max(
        [self._together(used), *alone], key=lambda time: time.total))

  def _sum(self, rows: Sequence[AllReduce],
           counts: collections.Counter[AllReduce], ways: int) -> Usage:
    """Adds up all-reduces by one algorithm, the largest first."""
    each = self._usage(rows[0]).links + _WORK_OF_ONE
    limit = max(_LEAST, _WORK // ways // each)
    known = [self._usage(one).scaled(counts[one], counts[one])
             for one in rows[:limit]]
    used = sum(known, Usage.nothing(self.topology))
    rest = rows[limit:]
    if not rest:
      return used
    last = self._usage(rows[limit - 1])
    num_bytes = sum(counts[one] * one.num_bytes for one in rest)
    like_it = dataclasses.replace(
        last.scaled(sum(counts[one] for one in rest),
                    num_bytes / rows[limit - 1].num_bytes),
        basis="extrapolated")
    if len({one.busiest for one in known}) == 1:  # Roles don't rotate.
      return used + like_it
    # They do, so the rest's busiest are other devices each time: each device
    # gets what most get, and no less than all have in the mean.
    mean = (used + like_it).with_even_loads(np.mean)
    most = used + like_it.with_even_loads(
        lambda *loads, **how: np.minimum(np.median(*loads, **how),
                                         np.mean(*loads, **how)))
    return dataclasses.replace(
        most, device_bytes=np.maximum(most.device_bytes, mean.device_bytes),
        worker_bytes=np.maximum(most.worker_bytes, mean.worker_bytes))

  def _usage(self, one: AllReduce) -> Usage:
    if one not in self._known:
      self._known[one] = usage_lib.count(
          one.algorithm, self.topology, one.elements, one.itemsize,
          one.rotation)
    return self._known[one]

  def _together(self, used: Usage) -> Time:
    inside, across = self.network.inside, self.network.across
    return Time(
        float(used.latencies @ [inside.latency_seconds,
                                across.latency_seconds]),
        float(used.device_bytes.max()) / inside.bytes_per_second,
        float(used.worker_bytes.max()) / across.bytes_per_second)

  def _alone(self, one: AllReduce) -> Time:
    """How long one takes whose every phase waits for the one before."""
    latency = inside = across = 0.0
    for phase in usage_lib.count_by_phase(
        one.algorithm, self.topology, one.elements, one.itemsize, one.rotation):
      time = self._together(phase)
      latency += time.latency
      if time.inside >= time.across:
        inside += time.inside
      else:
        across += time.across
    return Time(latency, inside, across)
