"""ps, pscpu, psgpu: one place sums and sends back, as a parameter server.

They differ only in which places take turns: the replicas' own devices, the
workers' CPUs, or the GPUs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_cdops import registry
from tf_cdops.fabric import base


def broadcast(fabric: base.Fabric, value: Any, group: base.Group) -> list[Any]:
  """Copies a value to every device."""
  return [fabric.copy(value, place) for place in group.places]


def on_replicas(group: base.Group) -> str:
  """Returns the device that sums, in rotation."""
  return group.places[group.rotation % len(group.places)]


def on_hosts(group: base.Group) -> str:
  """Returns the worker's CPU that sums, in rotation."""
  return group.hosts[group.rotation % len(group.hosts)]


def register(name: str, root: Callable[[base.Group], str],
             **needs: Any) -> None:
  """Registers an algorithm that sums where `root` says."""

  def reduce(fabric: base.Fabric, values: Sequence[Any],
             group: base.Group) -> Any:
    return fabric.add(values, root(group))

  def traffic(length: int, group: base.Group) -> registry.Traffic:
    ranks = np.arange(len(group.places))
    # A value alone is its own sum, and stays.
    at = np.array([group.endpoint(root(group)) if len(ranks) > 1 else 0])
    gather = registry.phase(1, ranks, at, length)
    return registry.Traffic((gather,), (gather.back(),), at,
                            np.array([length]))

  @registry.register_all_reduce(name, reduce=reduce, broadcast=broadcast,
                                traffic=traffic, in_order=True, **needs)
  def parameter_server(fabric: base.Fabric, values: Sequence[Any],
                       group: base.Group) -> list[Any]:
    """The fewest steps there can be; the sum is in the order of replicas.

    Reference: Li et al., "Scaling distributed machine learning with the
    parameter server", 2014.
    """
    return broadcast(fabric, reduce(fabric, values, group), group)


register("ps", on_replicas,
         description="Shards are summed on the replicas' devices in turn.")
register("pscpu", on_hosts,
         description="Shards are summed on the workers' CPUs in turn.")
register("psgpu", on_replicas, device_types=["GPU"],
         description="Shards are summed on the GPUs in turn.")
