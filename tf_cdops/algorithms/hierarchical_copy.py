"""hierarchical_copy: sums up a binomial tree of devices, and copies down it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_cdops import registry
from tf_cdops.fabric import base


def reduce(fabric: base.Fabric, values: Sequence[Any],
           group: base.Group) -> Any:
  """Sums neighbours, then neighbours of neighbours, up to the root."""
  ranks = group.rotated()
  held = [values[rank] for rank in ranks]
  for distance in _distances(group):
    for i in range(0, len(held) - distance, 2 * distance):
      held[i] = fabric.add([held[i], held[i + distance]],
                           group.places[ranks[i]])
  return held[0]


def broadcast(fabric: base.Fabric, value: Any, group: base.Group) -> list[Any]:
  """Copies from the root down the same tree."""
  ranks = group.rotated()
  held = [fabric.copy(value, group.places[ranks[0]])] * len(ranks)
  for distance in reversed(_distances(group)):
    for i in range(distance, len(ranks), 2 * distance):
      held[i] = fabric.copy(held[i - distance], group.places[ranks[i]])
  return group.by_rank(ranks, held)


def traffic(length: int, group: base.Group) -> registry.Traffic:
  """Each device but the root sends up once, and gets the sum once."""
  ranks, steps = np.array(group.rotated()), range(1, len(_distances(group)) + 1)
  child = np.arange(1, len(ranks))
  parent = child & (child - 1)
  # It sends when all below it has come: in lg of their number, in steps.
  rise = np.frexp(np.minimum(child - parent, len(ranks) - child))[1]
  # It gets the sum after as many steps as its number has bits that are 1.
  fall = sum((child >> bit & 1 for bit in steps), child & 1)
  links = lambda at: registry.phase(1, ranks[child[at]], ranks[parent[at]],
                                    length)
  return registry.Traffic(tuple(links(rise == step) for step in steps),
                          tuple(links(fall == step).back() for step in steps),
                          ranks[:1], np.array([length]))


@registry.register_all_reduce(
    "hierarchical_copy", description="Sums up a tree, and copies down it.",
    reduce=reduce, broadcast=broadcast, traffic=traffic)
def hierarchical_copy(fabric: base.Fabric, values: Sequence[Any],
                      group: base.Group) -> list[Any]:
  """Best for small tensors on many devices; near ones exchange the most.

  TensorFlow's name; unlike its own this keeps every replica, whatever their
  number.

  Reference: Thakur, Rabenseifner and Gropp, "Optimization of collective
  communication operations in MPICH", 2005.
  """
  return broadcast(fabric, reduce(fabric, values, group), group)


def _distances(group: base.Group) -> list[int]:
  return [1 << level for level in range((len(group.places) - 1).bit_length())]
