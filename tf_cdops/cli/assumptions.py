"""What `explain` takes for granted where no flag says it."""

import argparse
import dataclasses
from collections.abc import Sequence

from tf_cdops import cost
from tf_cdops.base import topology as topology_lib


@dataclasses.dataclass(frozen=True)
class Assumption:
  """One thing that isn't given.

  Attributes:
    what: the flag that would give it, without dashes.
    value: what is taken.
    why: the reason for that value.
    change: how to have another.
  """

  what: str
  value: str
  why: str
  change: str

  def __str__(self) -> str:
    return f"{self.value}: {self.why} ({self.change})"


def find(args: argparse.Namespace, topology: topology_lib.Topology,
         common: cost.Network) -> tuple[Assumption, ...]:
  """Returns what is assumed, the devices first.

  Args:
    args: what is given.
    topology: the devices.
    common: the links where no flag names one; those that were measured aren't
      assumed.
  """
  kind, = topology.device_types
  several, presets = len(topology.workers) > 1, cost.PRESETS.values()
  found = [_devices(args, kind, len(topology.workers[0]))]
  if args.inside is None and common.inside in presets:
    found.append(_link(args, "inside", common.inside, f"{kind}s",
                       numbers_given=not several))
  if several and args.across is None and common.across in presets:
    found.append(_link(args, "across", common.across, "workers",
                       numbers_given=True))
  return tuple(one for one in found if one is not None)


def text(assumed: Sequence[Assumption]) -> str:
  """Returns them for people; "" if there are none."""
  return "; ".join(map(str, assumed))


def _devices(args: argparse.Namespace, kind: str,
             count: int) -> Assumption | None:
  if args.devices is None:
    return Assumption("devices", f"{count} {kind}{'s' * (count > 1)} a worker",
                      "what this machine has",
                      "change with --devices and --device_type")
  if args.device_type is None:
    return Assumption(
        "device_type", f"{kind}s",
        "the default with --devices, whatever this machine has",
        "--device_type=CPU explains for CPUs")
  return None


def _link(args: argparse.Namespace, which: str, link: cost.Link, who: str,
          numbers_given: bool) -> Assumption | None:
  """`numbers_given`: whether --latency and --bandwidth are of this link."""
  given = [flag for flag in ("latency", "bandwidth")
           if numbers_given and getattr(args, flag) is not None]
  if len(given) == 2:  # There is no more to a link.
    return None
  but = f" but for --{given[0]}" if given else ""
  return Assumption(
      which, f"{link.name} {which} workers{but}",
      f"what {who} commonly have, "
      + cost.MEASURED.get(link.name, "in orders of magnitude, not measured"),
      f"change with --{which}")
