"""Counts what one all-reduce uses of which links.

Numbers come from its transfers (waves.py). Where those aren't known, because
there is no formula and the devices are many, it is traced on fewer devices,
and how that grows with the devices is carried on.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tf_cdops import topology as topology_lib
from tf_cdops.algorithms import registry
from tf_cdops.explaining import usage as usage_lib
from tf_cdops.explaining import waves as waves_lib
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib

# Of more shards than this, divided by the devices, some stand for all.
_SHARD_WORK, _LEAST_SHARDS = 40_000, 8


def of_all_reduce(algorithm: registry.Algorithm,
                  topology: topology_lib.Topology, elements: int,
                  itemsize: int = 1, shards: int = 1,
                  turn: int = 0) -> usage_lib.Usage:
  """Returns what one all-reduce uses.

  Args:
    algorithm: sums each shard.
    topology: the devices.
    elements: of each replica's value.
    itemsize: bytes an element.
    shards: they run side by side; see `sharding.all_reduce`.
    turn: the number of the first shard.
  """
  one = _sharded(
      functools.partial(_of_shard, algorithm, topology, itemsize, False),
      topology, elements, shards, turn)
  return one[0] if one else usage_lib.none(topology)


def phases_of(algorithm: registry.Algorithm, topology: topology_lib.Topology,
              elements: int, itemsize: int = 1, shards: int = 1,
              turn: int = 0) -> tuple[usage_lib.Usage, ...]:
  """Returns the same in phases, each of which waits for the one before."""
  return tuple(_sharded(
      functools.partial(_of_shard, algorithm, topology, itemsize, True),
      topology, elements, shards, turn))


def period(topology: topology_lib.Topology) -> int:
  """After how many turns the roles that rotate are the same again."""
  return math.lcm(len(topology.devices), len(topology.workers),
                  *{len(ranks) for ranks in topology.workers})


def _sharded(of_shard: Callable[[int, int], Sequence[usage_lib.Usage]],
             topology: topology_lib.Topology, elements: int, shards: int,
             turn: int) -> list[usage_lib.Usage]:
  """What all shards use, phase by phase; `of_shard` takes length and turn."""
  if len(topology.devices) == 1 or not elements:
    return []
  count = min(shards, elements)
  lengths = base.part_lengths(elements, count)
  looked_at = min(count, max(_LEAST_SHARDS,
                             _SHARD_WORK // len(topology.devices)))
  rest = sum(lengths[looked_at:])
  phases = []
  for known in itertools.zip_longest(
      *(of_shard(lengths[m], turn + m) for m in range(looked_at)),
      fillvalue=usage_lib.none(topology)):
    stand_in = [known[-1].times(1, rest / lengths[looked_at - 1],
                                "extrapolated")] if rest else []
    phases.append(usage_lib.estimate(known, stand_in, usage_lib.Usage.beside))
  return phases


def _of_shard(algorithm: registry.Algorithm, topology: topology_lib.Topology,
              itemsize: int, phased: bool, length: int, turn: int
              ) -> list[usage_lib.Usage]:
  found = waves_lib.of_all_reduce(algorithm, length,
                                  base.Group.of(topology, turn))
  if found is None:  # Its phases aren't known either.
    return [_extrapolated(algorithm, topology, itemsize, length, turn)]
  phases = [(wave,) for wave in found.waves] if phased else [found.waves]
  return [_of_waves(waves, topology, itemsize, found.basis)
          for waves in phases]


def _of_waves(waves: Sequence[traffic_lib.Wave],
              topology: topology_lib.Topology, itemsize: int,
              basis: str) -> usage_lib.Usage:
  if not waves:
    return usage_lib.none(topology)
  worker_of = _worker_of(topology)
  crosses = [worker_of[wave.sources] != worker_of[wave.targets]
             for wave in waves]
  slow = sum(wave.steps + wave.hidden
             for wave, crossing in zip(waves, crosses, strict=True)
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
  return usage_lib.Usage(
      sum(wave.steps for wave in waves), sum(wave.hidden for wave in waves),
      slow, int((sizes - across).sum()), int(across.sum()),
      np.array(device_loads), np.array(worker_loads), len(sizes), basis)


@functools.lru_cache(maxsize=16)
def _worker_of(topology: topology_lib.Topology) -> np.ndarray:
  """The worker of each place, and then of each host."""
  workers = np.zeros(len(topology.devices), int)
  for w, ranks in enumerate(topology.workers):
    workers[list(ranks)] = w
  return np.concatenate([workers, np.arange(len(topology.workers))])


def _extrapolated(algorithm: registry.Algorithm,
                  topology: topology_lib.Topology, itemsize: int,
                  length: int, turn: int) -> usage_lib.Usage:
  """Carries on what traces of few devices, twice and four times as many tell.

  What grows by d and then by rd goes on by r times as much at each doubling:
  this is right for a + b p^c and a + b lg p.
  """
  p, w = len(topology.devices), len(topology.workers)
  small = _smaller(topology)
  traces = [of_all_reduce(algorithm, t, length, itemsize, turn=turn)
            for t in small]
  doublings = math.log2(p / len(small[-1].devices))

  def grown(count: Callable[[usage_lib.Usage], float]) -> float:
    few, more, most = map(count, traces)
    if most == more or more == few:
      return most
    ratio = (most - more) / (more - few)
    times = (doublings if ratio == 1 else
             ratio * (ratio**doublings - 1) / (ratio - 1))
    return most + (most - more) * times

  return usage_lib.Usage(
      round(grown(lambda t: t.steps)), round(grown(lambda t: t.hidden)),
      round(grown(lambda t: t.slow_steps)), round(grown(lambda t: t.inside)),
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
