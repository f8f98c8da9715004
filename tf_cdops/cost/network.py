"""Links, what time is spent on, and the least that an all-reduce takes."""

import dataclasses
import math

from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib


@dataclasses.dataclass(frozen=True)
class Link:
  """What connects two devices.

  Attributes:
    name: for people.
    latency_seconds: of one message.
    bytes_per_second: in one direction.
    message_seconds: that a worker's processor spends on each message it sends
      or receives, whatever else is under way.
  """

  name: str
  latency_seconds: float
  bytes_per_second: float
  message_seconds: float = 0.0


# As TensorFlow's transfers see such links. Where `MEASURED` says nothing, they
# are set by hand: about four fifths of what such links are sold as, and between
# hosts no less latency than TensorFlow's transfers have on loopback. A user's
# own numbers are better.
PRESETS = {link.name: link for link in (
    Link("nvlink", 5e-6, 200e9, 3e-6),
    Link("pcie", 10e-6, 20e9, 3e-6),
    Link("memory", 25e-6, 15e9, 10e-6),
    Link("loopback", 200e-6, 1.9e9, 30e-6),
    Link("1gbe", 250e-6, 0.119e9, 50e-6),
    Link("10gbe", 200e-6, 1e9, 50e-6),
    Link("25gbe", 200e-6, 2.5e9, 50e-6),
    Link("100gbe", 200e-6, 10e9, 50e-6),
    Link("infiniband", 50e-6, 20e9, 20e-6),
)}
_HOW = "by `tf_cdops doctor`, on a machine of two cores"
# Which of them were measured, and how.
MEASURED = {
    "memory": f"measured between logical CPUs of one worker, {_HOW}",
    "loopback": f"measured between two workers, {_HOW}",
    "1gbe": f"measured between hosts with cables of 1 Gbit/s, {_HOW}",
}


def preset(name: str, argument: str = "link") -> Link:
  """Returns a link by its name; `argument` is what an error calls it."""
  if name not in PRESETS:
    raise errors.InputError(
        f"`{argument}` ({name!r}) must be one of {', '.join(PRESETS)}."
        f"{errors.did_you_mean(name, PRESETS)}")
  return PRESETS[name]


@dataclasses.dataclass(frozen=True)
class Network:
  """The links inside workers, and those across.

  Attributes:
    inside: between devices of one worker.
    across: between workers; a worker's devices share it.
    copied_bytes_per_second: of a worker's memory, for packing.
    shared_inside: whether a worker's devices share the one link inside, as
      CPUs share memory; else each has its own.
  """

  inside: Link
  across: Link
  copied_bytes_per_second: float = math.inf
  shared_inside: bool = False

  @classmethod
  def common(cls, topology: topology_lib.Topology) -> "Network":
    """Returns what such devices commonly have."""
    gpus = topology.device_types == {"GPU"}
    return cls(PRESETS["nvlink" if gpus else "memory"], PRESETS["100gbe"],
               300e9 if gpus else 5e9, topology.device_types == {"CPU"})


@dataclasses.dataclass(frozen=True)
class Time:
  """A predicted time, in seconds, by what it is spent on."""

  latency: float
  inside: float
  across: float
  overhead: float = 0.0

  @property
  def total(self) -> float:
    return self.latency + self.inside + self.across + self.overhead

  @property
  def dominant_term(self) -> str:
    """What most of it is spent on, in words."""
    spent = {"waiting for steps": self.latency, "links inside": self.inside,
             "links across": self.across,
             "messages and packing": self.overhead}
    return max(spent, key=lambda name: spent[name])


def lower_bound(topology: topology_lib.Topology, num_bytes: int,
                network: Network) -> Time:
  """Returns the time that no all-reduce of these bytes can beat.

  For n bytes on p devices of W workers: one step; and 2n(p-1)/p bytes from
  some device if there is one worker (Patarasuk and Yuan, 2009), and as much
  from all of them, where they share a link. With several
  workers, 2n(W-1)/W bytes from some worker, by the same argument; and n from
  each device, whose worker's CPU may do the rest.
  """
  p, w = len(topology.devices), len(topology.workers)
  if p == 1 or not num_bytes:
    return Time(0, 0, 0)
  if w == 1:
    sharing = p if network.shared_inside else 1
    return Time(network.inside.latency_seconds,
                sharing * 2 * num_bytes * (p - 1) / p
                / network.inside.bytes_per_second, 0)
  across = 2 * num_bytes * (w - 1) / w / network.across.bytes_per_second
  # A device's own bytes may go either way, and do so beside the others'.
  fastest = max(network.inside.bytes_per_second,
                network.across.bytes_per_second)
  return Time(network.across.latency_seconds, 0,
              max(across, num_bytes / fastest))
