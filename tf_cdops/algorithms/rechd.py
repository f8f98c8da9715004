"""rechd: recursive halving and doubling, for any number of devices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_cdops.algorithms import registry
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib


def traffic(length: int, group: base.Group) -> traffic_lib.Traffic:
  """At each level each device gets its half from its partner."""
  core, extra = (np.array(ranks, int) for ranks in _ranks(group))
  down = [traffic_lib.wave(1, extra, core[:len(extra)], length)]
  up = [traffic_lib.wave(1, core[:len(extra)], extra, length)]
  held, i = np.full(len(core), length), np.arange(len(core))
  distance = len(core) // 2
  while distance:
    partner = i ^ distance
    held = np.where(i < partner, (held + 1) // 2, held // 2)
    down.append(traffic_lib.wave(1, core[partner], core, held))
    up.insert(0, traffic_lib.wave(1, core[partner], core, held[partner]))
    distance //= 2
  return traffic_lib.Traffic(tuple(down), tuple(up), core, held)


def reduce_scatter(fabric: base.Fabric, values: Sequence[Any],
                   group: base.Group) -> list[Any]:
  """Folds in the ranks beyond a power of two, then halves with partners.

  At each level a device and its partner hold the same range of the vector;
  each keeps one half and gets the partner's sum of it.
  """
  core, extra = _ranks(group)
  held = [values[rank] for rank in core]
  for i, rank in enumerate(extra):
    held[i] = fabric.add([held[i], values[rank]], group.places[core[i]])
  distance = len(core) // 2
  while distance:
    halves = [fabric.split(value, 2) for value in held]
    for i, rank in enumerate(core):
      lower, upper = sorted((i, i ^ distance))
      side = 0 if i == lower else 1
      held[i] = fabric.add([halves[lower][side], halves[upper][side]],
                           group.places[rank])
    distance //= 2
  return held


def all_gather(fabric: base.Fabric, parts: Sequence[Any],
               group: base.Group) -> list[Any]:
  """The way back: partners exchange what they have, until all have all."""
  core, extra = _ranks(group)
  held = list(parts)
  distance = 1
  while distance < len(core):
    held = [fabric.concat([held[i & ~distance], held[i | distance]],
                          group.places[rank]) for i, rank in enumerate(core)]
    distance *= 2
  whole = dict(zip(core, held, strict=True))
  for i, rank in enumerate(extra):
    whole[rank] = fabric.copy(held[i], group.places[rank])
  return [whole[rank] for rank in range(len(group.places))]


@registry.register_all_reduce(
    "rechd", description="Partners halve, then double, what they hold.",
    reduce_scatter=reduce_scatter, all_gather=all_gather, traffic=traffic,
    steps_formula="2⌊lg p⌋; 2 more unless p is a power of 2",
    bytes_formula="2n(p-1)/p; up to 3n unless p is a power of 2")
def rechd(fabric: base.Fabric, values: Sequence[Any],
          group: base.Group) -> list[Any]:
  """Recursive halving and doubling: few steps, and the least traffic.

  For p devices and n elements, with p' the largest power of two up to p:
    steps: 2 lg p', and 2 more if p isn't a power of two.
    moved: 2(p-1)n in all.
    busiest device: n + ⌈n/2⌉ + ⌈n/4⌉ + … + ⌈2n/p'⌉, and n more if p isn't a
      power of two; this is 2(p-1)n/p where p is one and divides n.
    needs: any number of devices of any kind.
  The p - p' devices beyond p' hand their whole vector to a partner first and
  get the result from it last. Best where latency counts.

  The shard's number rotates the ranks.

  Reference: Thakur, Rabenseifner and Gropp, "Optimization of collective
  communication operations in MPICH", 2005.
  """
  return all_gather(fabric, reduce_scatter(fabric, values, group), group)


def _ranks(group: base.Group) -> tuple[list[int], list[int]]:
  """A power of two of ranks, and the rest, which are folded into them."""
  p = len(group.places)
  ranks = [(i + group.shard) % p for i in range(p)]
  core = 2**(p.bit_length() - 1)
  return ranks[:core], ranks[core:]
