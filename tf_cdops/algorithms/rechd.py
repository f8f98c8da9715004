"""rechd: recursive halving and doubling, for any number of devices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_cdops import registry
from tf_cdops.fabric import base


def reduce_scatter(fabric: base.Fabric, values: Sequence[Any],
                   group: base.Group) -> list[Any]:
  """Partners hold the same range; each keeps one half, summed with theirs."""
  core, extra, distances = _ranks(group)
  held = [values[rank] for rank in core]
  for i, rank in enumerate(extra):
    held[i] = fabric.add([held[i], values[rank]], group.places[core[i]])
  for distance in reversed(distances):
    halves = [fabric.split(value, 2) for value in held]
    for i, rank in enumerate(core):
      side = int(bool(i & distance))
      held[i] = fabric.add([halves[i & ~distance][side],
                            halves[i | distance][side]], group.places[rank])
  return held


def all_gather(fabric: base.Fabric, parts: Sequence[Any],
               group: base.Group) -> list[Any]:
  """The way back: partners exchange what they have, until all have all."""
  core, extra, distances = _ranks(group)
  held = list(parts)
  for distance in distances:
    held = [fabric.concat([held[i & ~distance], held[i | distance]],
                          group.places[rank]) for i, rank in enumerate(core)]
  held += [fabric.copy(held[i], group.places[rank])
           for i, rank in enumerate(extra)]
  return group.by_rank([*core, *extra], held)


def traffic(length: int, group: base.Group) -> registry.Traffic:
  """At each level each device gets its half from its partner."""
  core, extra, distances = (np.array(ranks, int) for ranks in _ranks(group))
  phases = [registry.phase(1, extra, core[:len(extra)], length)]
  held, i = np.full(len(core), length), np.arange(len(core))
  for distance in distances[::-1]:
    held = np.where(i & distance, held // 2, (held + 1) // 2)
    phases.append(registry.phase(1, core[i ^ distance], core, held))
  return registry.Traffic(
      tuple(phases), tuple(p.back() for p in reversed(phases)), core, held)


@registry.register_all_reduce(
    "rechd", description="Halving and doubling: few steps, little to send.",
    reduce_scatter=reduce_scatter, all_gather=all_gather, traffic=traffic)
def rechd(fabric: base.Fabric, values: Sequence[Any],
          group: base.Group) -> list[Any]:
  """Best where latency counts; for a power of two, it sends the least.

  Reference: Thakur, Rabenseifner and Gropp, "Optimization of collective
  communication operations in MPICH", 2005.
  """
  return all_gather(fabric, reduce_scatter(fabric, values, group), group)


def _ranks(group: base.Group) -> tuple[list[int], list[int], list[int]]:
  """A power of two of ranks; the rest, folded into those; the distances."""
  ranks, levels = group.rotated(), len(group.places).bit_length() - 1
  return ranks[:2**levels], ranks[2**levels:], [2**k for k in range(levels)]
