"""An all-reduce algorithm, described once."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tf_cdops.base import errors
from tf_cdops.fabric import base
from tf_cdops.registry import traffic as traffic_lib
from tf_cdops.registry import wire as wire_lib

AllReduce = Callable[[Any, Sequence[Any], base.Group], list[Any]]


@dataclasses.dataclass(frozen=True, eq=False)  # One is like no other.
class Algorithm:
  """A way to all-reduce, and what it needs.

  Attributes:
    name: what a spec calls it.
    description: what it does, in one line.
    all_reduce: (fabric, values, group) -> the sum, one per device.
    device_types: the kinds of devices it runs on; None for any.
    single_worker: whether all devices must be on one worker.
    kernel: an op whose kernel TensorFlow must have for the devices.
    whole_devices: whether virtual GPUs, parts of one GPU, won't do.
    in_order: whether each element is summed in one place, in the order of
      replicas, so that its bits don't depend on packing, shards or sizes.
    reduce_scatter: (fabric, values, group) -> the sum, as parts in the order
      of the vector, each on some device of the group.
    all_gather: (fabric, parts, group) -> the whole, one per device.
    reduce: (fabric, values, group) -> the sum, on one device.
    broadcast: (fabric, value, group) -> the value, one per device.
    traffic: (elements, group) -> what goes over which link, as a formula. All
      that is known of its cost follows from it: without one, from a trace.
    modelled: whether TensorFlow does it out of sight: not proved, its cost a
      model.
    pair: for "intra/inter", the two algorithms.
    shards: in how many parts it sums, side by side.
    part: what sums each of them; None if it isn't known.
    wire: how its messages are encoded; None for not at all.
  """

  name: str
  description: str
  all_reduce: AllReduce
  device_types: frozenset[str] | None = None
  single_worker: bool = False
  kernel: str | None = None
  whole_devices: bool = False
  in_order: bool = False
  reduce_scatter: Callable[..., list[Any]] | None = None
  all_gather: Callable[..., list[Any]] | None = None
  reduce: Callable[..., Any] | None = None
  broadcast: Callable[..., list[Any]] | None = None
  traffic: Callable[[int, base.Group], traffic_lib.Traffic] | None = None
  modelled: bool = False
  pair: "tuple[Algorithm, Algorithm] | None" = None
  shards: int = 1
  part: "Algorithm | None" = None
  wire: wire_lib.Wire | None = None

  def __post_init__(self) -> None:
    for first, second in (("reduce_scatter", "all_gather"),
                          ("reduce", "broadcast")):
      if (getattr(self, first) is None) != (getattr(self, second) is None):
        raise errors.AlgorithmError(
            f"`{first}` and `{second}` of {self.name!r} must be given "
            "together: each undoes the other.")

  @property
  def needs(self) -> str:
    """What it needs, in words; "any devices" if nothing."""
    parts = [" or ".join(sorted(self.device_types)) + " devices"
             if self.device_types else "any devices"]
    if self.single_worker:
      parts.append("one worker")
    if self.kernel:
      parts.append(f"the {self.kernel} kernel")
    if self.whole_devices:
      parts.append("no virtual GPUs")
    return ", ".join(parts)

  def __repr__(self) -> str:
    return f"<{self.name}: {self.description} Needs {self.needs}.>"
