"""Runs an algorithm in shards: parts that are all-reduced side by side."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tf_cdops.algorithms import registry
from tf_cdops.fabric import base


def all_reduce(fabric: base.Fabric, algorithm: registry.Algorithm,
               values: Sequence[Any], group: base.Group,
               shards: int = 1) -> list[Any]:
  """Splits each value in `shards` parts, sums each, and joins them.

  Args:
    fabric: what runs it.
    algorithm: sums each shard.
    values: one a place of the group.
    group: where they are; shard m gets the group's number plus m.
    shards: how many, more than there are elements if need be.

  Returns:
    The sum, one a place; a single value is its own sum.
  """
  if len(values) == 1 or values[0].length == 0:
    return list(values)
  if shards == 1:
    return algorithm.all_reduce(fabric, values, group)
  pieces = [fabric.split(value, shards) for value in values]
  sums = []
  for m, shard in enumerate(zip(*pieces, strict=True)):
    where = dataclasses.replace(group, shard=group.shard + m)
    sums.append(shard if shard[0].length == 0
                else algorithm.all_reduce(fabric, shard, where))
  return [fabric.concat([total[i] for total in sums], place)
          for i, place in enumerate(group.places)]
