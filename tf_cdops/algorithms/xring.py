"""xring: the vector's parts travel round a ring of devices, twice."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_cdops.algorithms import registry
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib


def traffic(length: int, group: base.Group) -> traffic_lib.Traffic:
  """Each part goes over every link but one, down and up alike."""
  order = np.array(_order(group))
  following = np.roll(order, -1)
  lengths = np.array(base.part_lengths(length, len(order)))
  hops = len(order) - 1
  # Part c goes down from place c + 1 to c, and up from c to c - 1.
  return traffic_lib.Traffic(
      (traffic_lib.wave(hops, order, following, length - lengths),),
      (traffic_lib.wave(hops, order, following,
                        length - np.roll(lengths, -1)),),
      order, lengths)


def reduce_scatter(fabric: base.Fabric, values: Sequence[Any],
                   group: base.Group) -> list[Any]:
  """Sums part c on its way once round the ring, to end on the c-th device."""
  order = _order(group)
  p = len(order)
  parts = [fabric.split(values[rank], p) for rank in order]
  owned = []
  for c in range(p):
    partial = parts[(c + 1) % p][c]
    for hop in range(2, p + 1):
      i = (c + hop) % p
      partial = fabric.add([partial, parts[i][c]], group.places[order[i]])
    owned.append(partial)
  return owned


def all_gather(fabric: base.Fabric, parts: Sequence[Any],
               group: base.Group) -> list[Any]:
  """Sends each part once round the ring, leaving a copy on every device."""
  order = _order(group)
  p = len(order)
  arrived = [list(parts) for _ in order]
  for c in range(p):
    for hop in range(1, p):
      i = (c + hop) % p
      arrived[i][c] = fabric.copy(arrived[i - 1][c], group.places[order[i]])
  joined = {rank: fabric.concat(arrived[i], group.places[rank])
            for i, rank in enumerate(order)}
  return [joined[rank] for rank in range(p)]


@registry.register_all_reduce(
    "xring", description="Parts travel round a ring, twice.",
    reduce_scatter=reduce_scatter, all_gather=all_gather, traffic=traffic,
    steps_formula="2(p-1)", bytes_formula="2n(p-1)/p")
def xring(fabric: base.Fabric, values: Sequence[Any],
          group: base.Group) -> list[Any]:
  """Ring all-reduce: every link carries the least there is to carry.

  For p devices and n elements:
    steps: 2(p-1).
    moved: 2(p-1)n in all.
    busiest device: 2n - 2⌊n/p⌋, less 1 where n mod p = p-1; this is
      2(p-1)n/p where p divides n.
    needs: any number of devices of any kind.
  Best for large tensors; its many steps make it slow for small ones.

  The shard's number rotates the ring's start and, inside a worker, the order
  of devices, so that shards cross between workers on different devices.

  Reference: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
  clusters of workstations", 2009.
  """
  return all_gather(fabric, reduce_scatter(fabric, values, group), group)


def _order(group: base.Group) -> list[int]:
  """The ranks round the ring: worker by worker, rotated by the shard."""
  ring = [rank for ranks in group.workers for rank in (
      _rotated(ranks, group.shard) if len(ranks) > 1 else ranks)]
  return _rotated(ring, group.shard)


def _rotated(items: Sequence[int], by: int) -> list[int]:
  start = by % len(items)
  return [*items[start:], *items[:start]]
