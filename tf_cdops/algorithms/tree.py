"""hierarchical_copy: sums up a tree of devices, and copies down it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_cdops.algorithms import registry
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib


def traffic(length: int, group: base.Group) -> traffic_lib.Traffic:
  """Each device but the root sends up once, and gets the sum once."""
  ranks = np.array(_ranks(group))
  child = np.arange(1, len(ranks))
  parent = child & (child - 1)
  # A child sends when what is below it has come, over lg of its size steps.
  below = np.minimum(child - parent, len(ranks) - child)
  rise = np.frexp(below)[1]  # The length of a number in bits.
  steps = range(1, len(ranks).bit_length())
  fall = sum(((child >> bit) & 1 for bit in range(len(ranks).bit_length())),
             np.zeros_like(child))  # The bits that are 1.
  return traffic_lib.Traffic(
      tuple(traffic_lib.wave(1, ranks[child[rise == step]],
                             ranks[parent[rise == step]], length)
            for step in steps),
      tuple(traffic_lib.wave(1, ranks[parent[fall == step]],
                             ranks[child[fall == step]], length)
            for step in steps),
      ranks[:1], np.array([length]))


def reduce(fabric: base.Fabric, values: Sequence[Any],
           group: base.Group) -> Any:
  """Sums neighbours, then neighbours of neighbours, up to the root."""
  ranks = _ranks(group)
  held = [values[rank] for rank in ranks]
  for distance in _distances(group):
    for i in range(0, len(held) - distance, 2 * distance):
      held[i] = fabric.add([held[i], held[i + distance]],
                           group.places[ranks[i]])
  return held[0]


def broadcast(fabric: base.Fabric, value: Any, group: base.Group) -> list[Any]:
  """Copies from the root down the same tree."""
  ranks = _ranks(group)
  held = {0: fabric.copy(value, group.places[ranks[0]])}
  for distance in reversed(_distances(group)):
    for i in range(0, len(ranks) - distance, 2 * distance):
      held[i + distance] = fabric.copy(held[i],
                                       group.places[ranks[i + distance]])
  by_rank = {rank: held[i] for i, rank in enumerate(ranks)}
  return [by_rank[rank] for rank in range(len(ranks))]


@registry.register_all_reduce(
    "hierarchical_copy", description="Sums up a tree, and copies down it.",
    reduce=reduce, broadcast=broadcast, traffic=traffic,
    steps_formula="2⌊lg p⌋", bytes_formula="n; at the root, ⌈lg p⌉n")
def hierarchical_copy(fabric: base.Fabric, values: Sequence[Any],
                      group: base.Group) -> list[Any]:
  """Binomial tree: neighbours first, so near devices exchange the most.

  TensorFlow's name; unlike its own this keeps every replica, whatever their
  number. For p devices and n elements:
    steps: 2⌊lg p⌋; a device may receive twice in a step.
    moved: 2(p-1)n in all.
    busiest device: the root, ⌈lg p⌉n in and out.
    needs: any number of devices of any kind.
  Best for small tensors on many devices. The shard's number rotates the
  ranks, and with them the root.

  Reference: Thakur, Rabenseifner and Gropp, "Optimization of collective
  communication operations in MPICH", 2005.
  """
  return broadcast(fabric, reduce(fabric, values, group), group)


def _ranks(group: base.Group) -> list[int]:
  p = len(group.places)
  return [(i + group.shard) % p for i in range(p)]


def _distances(group: base.Group) -> list[int]:
  return [1 << level for level in range((len(group.places) - 1).bit_length())]
