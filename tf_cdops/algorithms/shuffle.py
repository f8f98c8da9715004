"""pscpu, psgpu, ps: each shard is summed in one place, which sends it back.

As with parameter servers, hence the names. They differ only in which places
sum: the workers' CPUs, the GPUs, or the replicas' own devices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_cdops.algorithms import registry
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib


def reduce_at(fabric: base.Fabric, values: Sequence[Any], place: str) -> Any:
  """Sums all values on `place`, in the order of replicas."""
  return fabric.add(values, place)


def broadcast(fabric: base.Fabric, value: Any, group: base.Group) -> list[Any]:
  """Copies a value to every place."""
  return [fabric.copy(value, place) for place in group.places]


def on_hosts(group: base.Group) -> str:
  """The CPU of the worker whose turn it is."""
  return group.hosts[group.shard % len(group.hosts)]


def on_replicas(group: base.Group) -> str:
  """The replica's device whose turn it is."""
  return group.places[group.shard % len(group.places)]


def register(name: str, turn: Callable[[base.Group], str],
             **needs: Any) -> None:
  """Registers a shuffle that sums in the place that `turn` gives."""

  def reduce(fabric: base.Fabric, values: Sequence[Any],
             group: base.Group) -> Any:
    return reduce_at(fabric, values, turn(group))

  def traffic(length: int, group: base.Group) -> traffic_lib.Traffic:
    ranks = np.arange(len(group.places))
    # A value alone is its own sum, and stays.
    root = np.array([group.endpoint(turn(group)) if len(ranks) > 1 else 0])
    return traffic_lib.Traffic(
        (traffic_lib.wave(1, ranks, root, length),),
        (traffic_lib.wave(1, root, ranks, length),), root, np.array([length]))

  @registry.register_all_reduce(name, reduce=reduce, broadcast=broadcast,
                                traffic=traffic, in_order=True,
                                steps_formula="2", **needs)
  def shuffle(fabric: base.Fabric, values: Sequence[Any],
              group: base.Group) -> list[Any]:
    return broadcast(fabric, reduce(fabric, values, group), group)

  shuffle.__name__ = name
  shuffle.__doc__ = f"""{needs["description"]}

  For p devices and n elements, with s = p-1 where the summing place is one of
  the p devices, and s = p otherwise:
    steps: 2.
    moved: 2sn in all.
    busiest device: the one that sums, sn in and sn out.
    needs: {", ".join(sorted(needs.get("device_types", ()))) or "any"} devices.
  Each shard is summed in the next place in turn, and buckets begin with the
  place that has the least to do, so the load of a batch spreads over all of
  them. The fewest steps there can be; the sum is in the order of replicas.

  Reference: Li et al., "Scaling distributed machine learning with the
  parameter server", 2014.
  """


register("ps", on_replicas,
         description="Shards are summed on the replicas' devices in turn.",
         bytes_formula="n; where the sum is, (p-1)n")
register("pscpu", on_hosts,
         description="Shards are summed on the workers' CPUs in turn.",
         bytes_formula="n; where the sum is, pn")
register("psgpu", on_replicas, device_types=["GPU"],
         description="Shards are summed on the GPUs in turn.",
         bytes_formula="n; where the sum is, (p-1)n")
