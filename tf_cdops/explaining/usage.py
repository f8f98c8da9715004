"""How much an all-reduce uses of which links: by formula, or by tracing.

Numbers come from the algorithm's `traffic` where it has one. Otherwise it is
traced, on the devices themselves if they are few. If they are many it is
traced on fewer, and how that grows with the devices is carried on.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from tf_cdops import topology as topology_lib
from tf_cdops.algorithms import native
from tf_cdops.algorithms import registry
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib
from tf_cdops.fabric import tracing

# How the numbers were got, from the surest to the least sure.
BASES = ("exact", "traced", "modelled", "extrapolated")
# A trace takes time with the square of the devices.
_MOST_TRACED = 64
# Of more shards than this, times the devices, some stand for all.
_SHARD_WORK, _LEAST_SHARDS = 40_000, 8


@dataclasses.dataclass(frozen=True, eq=False)
class Usage:
  """What one all-reduce, or several, use.

  Attributes:
    steps: transfers on the longest chain.
    slow_steps: those of them in which something goes between workers.
    hidden: further steps, of an engine that works out of sight.
    inside: bytes that change device inside workers, in all.
    across: bytes that change worker, in all.
    device_loads: bytes that each device, and then each host, sends (first
      row) and receives (second) inside its worker.
    worker_loads: bytes that each worker sends to and receives from others.
    links: how many transfers this was added up from: the work of doing so.
    basis: one of BASES.
  """

  steps: int
  slow_steps: int
  hidden: int
  inside: int
  across: int
  device_loads: np.ndarray
  worker_loads: np.ndarray
  links: int = 0
  basis: str = BASES[0]

  def beside(self, other: "Usage") -> "Usage":
    """Returns what both use when they run at the same time."""
    return self._with(other, max)

  def after(self, other: "Usage") -> "Usage":
    """Returns what both use when they run one after the other."""
    return self._with(other, sum)

  def standing_for(self, steps: float, size: float) -> "Usage":
    """Returns it with so many times the steps and so many times the bytes."""
    return Usage(
        round(self.steps * steps), round(self.slow_steps * steps),
        round(self.hidden * steps), round(self.inside * size),
        round(self.across * size), self.device_loads * size,
        self.worker_loads * size, self.links, "extrapolated")

  def _with(self, other: "Usage",
            join: Callable[[tuple[int, int]], int]) -> "Usage":
    return Usage(
        join((self.steps, other.steps)),
        join((self.slow_steps, other.slow_steps)),
        join((self.hidden, other.hidden)),
        self.inside + other.inside, self.across + other.across,
        self.device_loads + other.device_loads,
        self.worker_loads + other.worker_loads, self.links + other.links,
        max(self.basis, other.basis, key=BASES.index))


def none(topology: topology_lib.Topology) -> Usage:
  """Returns the usage of nothing."""
  w = len(topology.workers)
  return Usage(0, 0, 0, 0, 0, np.zeros((2, len(topology.devices) + w)),
               np.zeros((2, w)))


def of_all_reduce(algorithm: registry.Algorithm,
                  topology: topology_lib.Topology, elements: int,
                  itemsize: int = 1, shards: int = 1, turn: int = 0) -> Usage:
  """Returns what one all-reduce uses.

  Args:
    algorithm: sums each shard.
    topology: the devices.
    elements: of each replica's value.
    itemsize: bytes an element.
    shards: they run side by side; see `sharding.all_reduce`.
    turn: the number of the first shard.
  """
  total = none(topology)
  if len(topology.devices) == 1 or not elements:
    return total
  lengths = base.part_lengths(elements, shards)[:min(shards, elements)]
  most = max(_LEAST_SHARDS, _SHARD_WORK // len(topology.devices))
  looked_at = min(len(lengths), most)
  for i in range(looked_at):
    m = i * len(lengths) // looked_at
    total = total.beside(_of_shard(algorithm, topology, lengths[m] * itemsize,
                                   itemsize, turn + m))
  return total if looked_at == len(lengths) else (
      total.standing_for(1, len(lengths) / looked_at))


def period(topology: topology_lib.Topology) -> int:
  """After how many turns the roles that rotate are the same again."""
  return math.lcm(len(topology.devices), len(topology.workers),
                  *{len(ranks) for ranks in topology.workers})


def _of_shard(algorithm: registry.Algorithm, topology: topology_lib.Topology,
              num_bytes: int, itemsize: int, turn: int) -> Usage:
  length, group = num_bytes // itemsize, base.Group.of(topology, turn)
  if algorithm.traffic:
    waves = algorithm.traffic(length, group).waves
    basis = "modelled" if algorithm.modelled else "exact"
  elif len(topology.devices) <= _MOST_TRACED:
    waves, basis = _traced(algorithm, length, group)
  else:
    return _extrapolated(algorithm, topology, num_bytes, itemsize, turn)
  return _of_waves(waves, topology, itemsize, basis)


def _of_waves(waves: tuple[traffic_lib.Wave, ...],
              topology: topology_lib.Topology, itemsize: int,
              basis: str) -> Usage:
  if not waves:
    return none(topology)
  worker_of = _worker_of(topology)
  crosses = [worker_of[wave.sources] != worker_of[wave.targets]
             for wave in waves]
  slow = sum(wave.steps for wave, crossing in zip(waves, crosses, strict=True)
             if (wave.elements * crossing).any())
  sizes = itemsize * np.concatenate([wave.elements for wave in waves])
  across = sizes * np.concatenate(crosses)
  device_loads, worker_loads = [], []
  for ends in ([wave.sources for wave in waves],
               [wave.targets for wave in waves]):
    places = np.concatenate(ends)
    crossing = np.bincount(places, across, len(worker_of))
    device_loads.append(
        np.bincount(places, sizes, len(worker_of)) - crossing)
    worker_loads.append(np.bincount(worker_of, crossing))
  return Usage(
      sum(wave.steps for wave in waves), slow,
      sum(wave.hidden for wave in waves),
      int((sizes - across).sum()), int(across.sum()),
      np.array(device_loads), np.array(worker_loads), len(sizes), basis)


@functools.lru_cache(maxsize=16)
def _worker_of(topology: topology_lib.Topology) -> np.ndarray:
  """The worker of each place, and then of each host."""
  workers = np.zeros(len(topology.devices), int)
  for w, ranks in enumerate(topology.workers):
    workers[list(ranks)] = w
  return np.concatenate([workers, np.arange(len(topology.workers))])


def _traced(algorithm: registry.Algorithm, length: int, group: base.Group
            ) -> tuple[tuple[traffic_lib.Wave, ...], str]:
  fabric = tracing.TracingFabric()
  values = [fabric.replica(i, length, place)
            for i, place in enumerate(group.places)]
  results = algorithm.all_reduce(fabric, values, group)
  steps: dict[int, list[tuple[int, int, int]]] = {
      step: [] for step in range(1, max(r.step for r in results) + 1)}
  for transfer in fabric.transfers:
    steps.setdefault(transfer.step, []).append(
        (group.endpoint(transfer.source), group.endpoint(transfer.target),
         transfer.elements))
  waves = [traffic_lib.wave(1, *np.array(links).reshape(-1, 3).T)
           for links in steps.values()]
  for step in fabric.native_steps:
    own = base.Group(step.places, (tuple(range(len(step.places))),), ())
    places = np.array([group.endpoint(place) for place in step.places])
    waves += [wave.moved_to(places)
              for wave in native.traffic(step.elements, own).waves]
  return (tuple(wave for wave in waves if wave.elements.any()),
          "modelled" if fabric.native_steps else "traced")


def _extrapolated(algorithm: registry.Algorithm,
                  topology: topology_lib.Topology, num_bytes: int,
                  itemsize: int, turn: int) -> Usage:
  """Carries on what traces of few devices, twice and four times as many tell.

  What grows by d and then by rd goes on by r times as much at each doubling:
  this is right for a + b p^c and a + b lg p.
  """
  p, w = len(topology.devices), len(topology.workers)
  small = _smaller(topology)
  traces = [_of_shard(algorithm, t, num_bytes, itemsize, turn) for t in small]
  doublings = math.log2(p / len(small[-1].devices))

  def grown(count: Callable[[Usage], float]) -> float:
    few, more, most = map(count, traces)
    if most == more or more == few:
      return most
    ratio = (most - more) / (more - few)
    times = (doublings if ratio == 1 else
             ratio * (ratio**doublings - 1) / (ratio - 1))
    return most + (most - more) * times

  return Usage(
      round(grown(lambda t: t.steps)), round(grown(lambda t: t.slow_steps)),
      round(grown(lambda t: t.hidden)), round(grown(lambda t: t.inside)),
      round(grown(lambda t: t.across)),
      np.full((2, p + w), grown(lambda t: t.device_loads.max())),
      np.full((2, w), grown(lambda t: t.worker_loads.max())),
      sum(t.links for t in traces), "extrapolated")


def _smaller(topology: topology_lib.Topology) -> list[topology_lib.Topology]:
  """Three with the same shape, each of twice as many devices as the last."""
  w, g = len(topology.workers), max(map(len, topology.workers))
  sizes = ([(2, min(g, 8)), (4, min(g, 8)), (8, min(g, 8))] if w >= 8 else
           [(min(w, 4), 4), (min(w, 4), 8), (min(w, 4), 16)])
  kind = "GPU" if "GPU" in topology.device_types else "CPU"
  return [topology_lib.Topology.grid(*size, device_type=kind)
          for size in sizes]
