"""Links, what time is spent on, and the least that an all-reduce takes."""

import dataclasses

from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib


@dataclasses.dataclass(frozen=True)
class Link:
  """What connects two devices; bandwidth is that of one direction."""

  name: str
  latency_seconds: float
  bytes_per_second: float


# Orders of magnitude, set by hand and measured nowhere: about four fifths of
# what such links are sold as, and latencies as TensorFlow's transfers may see
# them. A user's own numbers are better.
PRESETS = {link.name: link for link in (
    Link("nvlink", 5e-6, 200e9),
    Link("pcie", 10e-6, 20e9),
    Link("memory", 5e-6, 10e9),
    Link("loopback", 60e-6, 2e9),
    Link("10gbe", 60e-6, 1e9),
    Link("25gbe", 50e-6, 2.5e9),
    Link("100gbe", 40e-6, 10e9),
    Link("infiniband", 10e-6, 20e9),
)}


def preset(name: str, argument: str = "link") -> Link:
  """Returns a link by its name; `argument` is what an error calls it."""
  if name not in PRESETS:
    raise errors.InputError(
        f"`{argument}` ({name!r}) must be one of {', '.join(PRESETS)}."
        f"{errors.did_you_mean(name, PRESETS)}")
  return PRESETS[name]


@dataclasses.dataclass(frozen=True)
class Network:
  """The links inside workers, and those across."""

  inside: Link
  across: Link

  @classmethod
  def common(cls, topology: topology_lib.Topology) -> "Network":
    """Returns what such devices commonly have."""
    gpus = topology.device_types == {"GPU"}
    return cls(PRESETS["nvlink" if gpus else "memory"], PRESETS["100gbe"])


@dataclasses.dataclass(frozen=True)
class Time:
  """A predicted time, in seconds, by what it is spent on."""

  latency: float
  inside: float
  across: float

  @property
  def total(self) -> float:
    return self.latency + self.inside + self.across

  @property
  def dominant_term(self) -> str:
    """What most of it is spent on, in words."""
    spent = {"waiting for steps": self.latency, "links inside": self.inside,
             "links across": self.across}
    return max(spent, key=lambda name: spent[name])


def lower_bound(topology: topology_lib.Topology, num_bytes: int,
                network: Network) -> Time:
  """Returns the time that no all-reduce of these bytes can beat.

  For n bytes on p devices of W workers: one step; and 2n(p-1)/p bytes from
  some device if there is one worker (Patarasuk and Yuan, 2009). With several
  workers, 2n(W-1)/W bytes from some worker, by the same argument; and n from
  each device, whose worker's CPU may do the rest.
  """
  p, w = len(topology.devices), len(topology.workers)
  if p == 1 or not num_bytes:
    return Time(0, 0, 0)
  if w == 1:
    return Time(network.inside.latency_seconds,
                2 * num_bytes * (p - 1) / p / network.inside.bytes_per_second,
                0)
  across = 2 * num_bytes * (w - 1) / w / network.across.bytes_per_second
  # A device's own bytes may go either way, and do so beside the others'.
  fastest = max(network.inside.bytes_per_second,
                network.across.bytes_per_second)
  return Time(network.across.latency_seconds, 0,
              max(across, num_bytes / fastest))
