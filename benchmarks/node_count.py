"""How many nodes a plan has: its algorithms' verbs, run and counted.

Besides those of its verbs, a bucket has for each device two to join and part
what is packed, two to make a tensor that is split flat and to give it its shape
back, and each value that such ops share as one constant of the device: the
axis, each list of lengths, "flat", and each shape. Even parts that are aligned
are rows, by a reshape that makes flat, too.
"""

import math
from collections.abc import Sequence
from typing import Any

from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.fabric import base
from tf_cdops.fabric import tensorflow as tensorflow_fabric
from tf_cdops.fabric import tracing
from tf_cdops.planning import planner

_AXIS, _FLAT = "axis", "flat"
_ITEMSIZE = 4


def predict(spec: str, sizes: Sequence[planner.TensorSize],
            devices: int) -> int:
  """Returns the number of nodes on CPUs of one worker, for float32."""
  topology = topology_lib.Topology.grid(1, devices, device_type="CPU")
  plan = planner.plan(sizes, topology, planner.parse_all_reduce_spec(spec))
  nodes, constants = 0, set[Any]()
  for bucket in plan.buckets:
    shapes = [sizes[i].shape for i in bucket.tensors]
    lengths = [math.prod(shape) for shape in shapes]
    fabric = _CountingFabric(constants)
    if len(shapes) > 1 and len(set(shapes)) == 1:  # Stacked, and unstacked.
      nodes += 2 * devices
    elif len(shapes) > 1:
      reshaped = [shape for shape in shapes if len(shape) != 1]
      nodes += (2 + 2 * len(reshaped)) * devices
      for place in topology.devices:
        fabric.share(place, _AXIS, *_uneven(lengths), *reshaped,
                     *([_FLAT] if reshaped else []))
    values = [fabric.replica(i, sum(lengths), place)
              for i, place in enumerate(topology.devices)]
    registry.lookup(bucket.algorithm, bucket.shards).all_reduce(
        fabric, values, base.Group.from_topology(topology, bucket.rotation))
    nodes += fabric.nodes
    for value in values:
      if value in fabric.parted and len(shapes) == 1 and len(shapes[0]) != 1:
        made_flat = not fabric.parted[value]
        nodes += 1 + made_flat
        fabric.share(value.place, shapes[0], *[_FLAT] * made_flat)
  return nodes + len(constants)


class _CountingFabric(tracing.TracingFabric):
  """Counts the nodes that its verbs would emit.

  Attributes:
    nodes: how many, but constants.
    parted: which values were split, and whether into rows.
  """

  def __init__(self, constants: set[Any]):
    super().__init__()
    self.nodes, self.parted = 0, dict[tracing.TracedValue, bool]()
    self._constants = constants

  def share(self, place: str, *constants: Any) -> None:
    self._constants.update((place, constant) for constant in constants)

  def split(self, value: tracing.TracedValue,
            count: int) -> list[tracing.TracedValue]:
    parts = super().split(value, count)
    if count > 1:
      lengths = [part.length for part in parts]
      in_rows = (not _uneven(lengths)
                 and lengths[0] * _ITEMSIZE % tensorflow_fabric.ALIGNMENT == 0)
      self.nodes += 1 + in_rows
      self.parted[value] = in_rows
      self.share(value.place, *([(count, -1)] if in_rows
                                else [_AXIS, *_uneven(lengths)]))
    return parts

  def concat(self, parts: Sequence[tracing.TracedValue],
             place: str) -> tracing.TracedValue:
    self.nodes += 1
    self.share(place, _AXIS)
    nodes = self.nodes
    joined = super().concat(parts, place)
    self.nodes = nodes  # What arrives needs no copy.
    return joined

  def add(self, values: Sequence[tracing.TracedValue], place: str, *,
          in_order: bool = False) -> tracing.TracedValue:
    # One more where it is to be kept from rewriting.
    nodes = self.nodes + 1 + (len(values) > 2)
    total = super().add(values, place, in_order=in_order)
    self.nodes = nodes
    return total

  def copy(self, value: tracing.TracedValue,
           place: str) -> tracing.TracedValue:
    self.nodes += value.place != place
    return super().copy(value, place)


def _uneven(lengths: Sequence[int]) -> list[tuple[int, ...]]:
  """Equal lengths need no constant: Split takes a number."""
  return [tuple(lengths)] if len(set(lengths)) > 1 else []
