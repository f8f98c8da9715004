"""pscpu, psgpu, ps: each shard is summed in one place, which sends it back.

As with parameter servers, hence the names. They differ only in which places
sum: the workers' CPUs, the GPUs, or the replicas' own devices.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tf_cdops.algorithms import registry
from tf_cdops.fabric import base


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

  def cost(length: int, group: base.Group) -> base.Cost:
    p = len(group.places)
    if p == 1 or not length:
      return base.Cost(0, 0, 0)
    others = p - (turn(group) in group.places)
    return base.Cost(2, 2 * others * length, others * length)

  @registry.register_all_reduce(name, reduce=reduce, broadcast=broadcast,
                                cost=cost, in_order=True, **needs)
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
  Each shard, and each bucket, is summed in the next place in turn, so the
  load of a batch spreads over all of them. The fewest steps there can be;
  the sum is in the order of replicas.

  Reference: Li et al., "Scaling distributed machine learning with the
  parameter server", 2014.
  """


register("ps", on_replicas,
         description="Shards are summed on the replicas' devices in turn.")
register("pscpu", on_hosts,
         description="Shards are summed on the workers' CPUs in turn.")
register("psgpu", on_replicas, device_types=["GPU"],
         description="Shards are summed on the GPUs in turn.")
