"""xring: the vector's parts travel round a ring of devices, twice."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_cdops import registry
from tf_cdops.fabric import base


def reduce_scatter(fabric: base.Fabric, values: Sequence[Any],
                   group: base.Group) -> list[Any]:
  """Sums part c on its way once round the ring, to end on the c-th device."""
  ring = _ring(group)
  parts = [fabric.split(values[rank], len(ring)) for rank in ring]
  owned = []
  for c in range(len(ring)):
    partial = parts[(c + 1) % len(ring)][c]
    for hop in range(2, len(ring) + 1):
      i = (c + hop) % len(ring)
      partial = fabric.add([partial, parts[i][c]], group.places[ring[i]])
    owned.append(partial)
  return owned


def all_gather(fabric: base.Fabric, parts: Sequence[Any],
               group: base.Group) -> list[Any]:
  """Sends each part once round the ring, leaving a copy on every device."""
  ring = _ring(group)
  arrived = [list(parts) for _ in ring]
  for c in range(len(ring)):
    for hop in range(1, len(ring)):
      i = (c + hop) % len(ring)
      arrived[i][c] = fabric.copy(arrived[i - 1][c], group.places[ring[i]])
  return group.by_rank(ring, [fabric.concat(arrived[i], group.places[rank])
                              for i, rank in enumerate(ring)])


def traffic(length: int, group: base.Group) -> registry.Traffic:
  """Each part takes p - 1 hops, over every link but one, both times."""
  ring = np.array(_ring(group))
  lengths = np.array(base.part_lengths(length, len(ring)))
  around = lambda skipped: registry.phase(
      len(ring) - 1, ring, np.roll(ring, -1), length - skipped)
  return registry.Traffic((around(lengths),), (around(np.roll(lengths, -1)),),
                          ring, lengths)


@registry.register_all_reduce(
    "xring", description="Ring: every device sends the least there is to send.",
    reduce_scatter=reduce_scatter, all_gather=all_gather, traffic=traffic)
def xring(fabric: base.Fabric, values: Sequence[Any],
          group: base.Group) -> list[Any]:
  """Best for large tensors; its many steps make it slow for small ones.

  Reference: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
  clusters of workstations", 2009.
  """
  return all_gather(fabric, reduce_scatter(fabric, values, group), group)


def _ring(group: base.Group) -> list[int]:
  """Worker by worker; rotated inside, too: shards cross on other devices."""
  return group.rotated([rank for ranks in group.workers
                        for rank in group.rotated(ranks)])
