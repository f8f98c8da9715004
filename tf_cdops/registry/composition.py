"""Functions of an algorithm that return another one."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from tf_cdops.base import errors
from tf_cdops.fabric import base
from tf_cdops.registry import algorithm as algorithm_lib
from tf_cdops.registry import traffic as traffic_lib

Algorithm = algorithm_lib.Algorithm


@functools.lru_cache(maxsize=256)  # Asked for by every bucket of a plan.
def sharded(algorithm: Algorithm, shards: int) -> Algorithm:
  """Returns an algorithm that splits each value and sums the parts.

  The parts are summed side by side, with the roles rotated from each to the
  next, and joined. A part without elements costs nothing.

  Args:
    algorithm: sums each part.
    shards: how many parts, more than there are elements if need be.
  """

  def all_reduce(fabric: base.Fabric, values: Sequence[Any],
                 group: base.Group) -> list[Any]:
    if len(values) == 1 or values[0].length == 0:
      return list(values)
    if shards == 1:
      return algorithm.all_reduce(fabric, values, group)
    pieces = [fabric.split(value, shards) for value in values]
    sums = []
    for m, part in enumerate(zip(*pieces, strict=True)):
      sums.append(part if part[0].length == 0 else algorithm.all_reduce(
          fabric, part, group.at_rotation(group.rotation + m)))
    return [fabric.concat([total[i] for total in sums], place)
            for i, place in enumerate(group.places)]

  def traffic(length: int, group: base.Group) -> traffic_lib.Traffic:
    assert algorithm.traffic is not None
    if shards == 1 and len(group.places) > 1:
      return algorithm.traffic(length, group)
    lengths = base.part_lengths(length, shards) if len(group.places) > 1 else ()
    return traffic_lib.Traffic(traffic_lib.side_by_side(
        algorithm.traffic(n, group.at_rotation(group.rotation + m)).phases
        for m, n in enumerate(lengths) if n))

  return dataclasses.replace(
      algorithm, name=algorithm.name + (f"#{shards}" if shards > 1 else ""),
      all_reduce=all_reduce, traffic=traffic if algorithm.traffic else None,
      reduce_scatter=None, all_gather=None, reduce=None, broadcast=None,
      shards=shards, part=algorithm)


@functools.lru_cache(maxsize=256)
def in_order(algorithm: Algorithm) -> Algorithm:
  """Returns an algorithm that sums strictly in the order of replicas.

  So the bits of a sum don't depend on packing, shards or sizes.

  Raises:
    AlgorithmError: if the algorithm doesn't sum each element in one place.
  """
  if not algorithm.in_order:
    raise errors.AlgorithmError(
        f"`algorithm` ({algorithm.name!r}) must sum each element in one place, "
        "in the order of replicas; use 'ps', 'pscpu' or 'psgpu'.")

  def all_reduce(fabric: base.Fabric, values: Sequence[Any],
                 group: base.Group) -> list[Any]:
    return algorithm.all_reduce(_InOrder(fabric), values, group)

  return dataclasses.replace(algorithm, all_reduce=all_reduce)


class _InOrder:
  """A fabric whose sums are made in order, to the bit."""

  def __init__(self, fabric: Any):
    self._fabric = fabric

  def __getattr__(self, verb: str) -> Any:
    return getattr(self._fabric, verb)

  def add(self, values: Sequence[Any], place: str, *,
          in_order: bool = True) -> Any:
    del in_order  # As the name says.
    return self._fabric.add(values, place, in_order=True)
