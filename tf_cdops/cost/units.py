"""What an algorithm costs for each byte and message: a batch in no time.

An all-reduce by one algorithm costs about a fixed time and a time for each of
its bytes. Roles rotate, so over a batch most of its loads are spread evenly.
"""

import dataclasses

import numpy as np

from tf_cdops import registry
from tf_cdops.cost import model as model_lib
from tf_cdops.cost import usage

_ITEMSIZE = 4


@dataclasses.dataclass(frozen=True)
class Spread:
  """A load of one all-reduce on the busiest of some devices or workers.

  Attributes:
    most: where the role is the heaviest.
    other: on the same device, in the other rotations.
    rotations: how many there are.
  """

  most: float
  other: float
  rotations: float

  @classmethod
  def from_loads(cls, loads: np.ndarray) -> "Spread":
    """Takes the loads of one rotation for those of a device in all."""
    most = float(loads.max(initial=0))
    if not most:
      return cls(0, 0, 1)
    rotations = loads.size / np.count_nonzero(loads > 0.99 * most)
    if rotations == 1:
      return cls(most, most, 1)
    other = (float(loads.mean()) * rotations - most) / (rotations - 1)
    return cls(most, other, rotations)

  def over(self, total: float, largest: float) -> float:
    """Returns the busiest one's load over a batch, by its amounts."""
    heaviest = max(largest, total / self.rotations)
    return self.most * heaviest + self.other * (total - heaviest)


@dataclasses.dataclass(frozen=True)
class Unit:
  """An algorithm on some devices: seconds for a byte, and for an all-reduce.

  Attributes:
    latency: of one all-reduce.
    loads: seconds for a byte, on links inside and across.
    overhead: seconds of one all-reduce for its messages.
    coding: seconds for a byte, to encode and to decode it for a wire.
    alone: seconds for a byte on links inside and across, where nothing else
      is under way.
    alone_overhead: seconds for its messages then.
  """

  latency: float
  loads: tuple[Spread, Spread]
  overhead: Spread
  coding: Spread
  alone: tuple[float, float]
  alone_overhead: float

  def seconds(self, count: int, num_bytes: int, largest: int,
              shards: int = 1) -> float:
    """Returns the time of `count` all-reduces of `num_bytes` together."""
    if not count:
      return 0.0
    together = sum(load.over(num_bytes, largest / shards)
                   for load in (*self.loads, self.coding))
    # Shards have other roots each; what is left is what all have to carry.
    inside, across = (
        max(seconds / shards, load.over(1, 1 / shards))
        for seconds, load in zip(self.alone, self.loads, strict=True))
    alone = (inside + across * (1 + model_lib.IDLE / shards)
             + self.coding.over(1, 1 / shards))
    return self.latency + max(
        together + self.overhead.over(count * shards, 1),
        alone * largest + max(self.alone_overhead,
                              self.overhead.over(shards, 1)))


def of_algorithm(model: model_lib.Model,
                 algorithm: registry.Algorithm) -> Unit:
  """Returns the unit of an algorithm that has a formula."""
  found = [_at_rotation(model, algorithm, rotation)
           for rotation in range(1 if model.is_alike(algorithm) else 2)]
  worst = lambda spreads: max(spreads, key=lambda one: one.over(1, 0))
  return Unit(
      max(unit.latency for unit in found),
      (worst(unit.loads[0] for unit in found),
       worst(unit.loads[1] for unit in found)),
      worst(unit.overhead for unit in found),
      worst(unit.coding for unit in found),
      max((unit.alone for unit in found), key=sum),
      max(unit.alone_overhead for unit in found))


def _at_rotation(model: model_lib.Model, algorithm: registry.Algorithm,
                 rotation: int) -> Unit:
  topology, network = model.topology, model.network
  devices = len(topology.devices)
  elements = model_lib.EVEN * devices
  num_bytes = elements * _ITEMSIZE
  phases, _ = model.phases(model_lib.AllReduce(
      algorithm, elements, _ITEMSIZE, rotation))
  used, time = sum(phases, usage.Usage.nothing(topology)), model.times(phases)
  loads = used.inside_bytes(topology, network.shared_inside)
  inside = ([loads[np.newaxis]] if network.shared_inside
            else [loads[:, :devices], loads[:, devices:]])
  each = np.array([network.inside.message_seconds,
                   network.across.message_seconds])
  return Unit(
      time.latency,
      (_busiest(inside, num_bytes * network.inside.bytes_per_second),
       _busiest([used.worker_bytes],
                num_bytes * network.across.bytes_per_second)),
      Spread.from_loads(each @ used.messages),
      Spread.from_loads(used.coded / (num_bytes
                                      * network.copied_bytes_per_second)),
      (time.inside / num_bytes, time.across / num_bytes),
      sum(float((each @ phase.messages).max()) for phase in phases))


def _busiest(groups: list[np.ndarray], scale: float) -> Spread:
  """Of groups of devices, and of both directions, the one with the most."""
  rows = [row / scale for group in groups for row in group]
  return Spread.from_loads(max(rows, key=lambda row: row.max(initial=0)))
