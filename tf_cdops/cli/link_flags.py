"""The flags of `explain` that say what the links are."""

import argparse
import dataclasses
import re

from tf_cdops import cost
from tf_cdops.base import errors
from tf_cdops.base import rates
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.cost import links_file

_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-zµ]*)")
_LATENCIES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds --network, --inside, --across, --latency and --bandwidth."""
  links = parser.add_argument_group("over which links")
  links.add_argument("--network", metavar="@FILE",
                     help="links as `doctor` measured them, such as "
                     "@links.json (default: those of the spec's @FILE, if it "
                     "has any); the flags below say more")
  links.add_argument("--inside", metavar="NAME",
                     help="links inside workers (default: nvlink, or memory "
                     "for CPUs)")
  links.add_argument("--across", metavar="NAME",
                     help="links between workers (default: 100gbe)")
  links.add_argument("--latency", metavar="TIME", help="such as 5us")
  links.add_argument("--bandwidth", metavar="RATE",
                     help="such as 12GB/s, 100Gbit/s or 500mbit")


def default(args: argparse.Namespace, topology: topology_lib.Topology,
            measured: given_links.MeasuredLinks | None) -> cost.Network:
  """Returns the links that are taken where no flag names one.

  Args:
    args: may have a file's.
    topology: the devices.
    measured: those of the spec's file, if it has any.
  """
  if args.network is not None:
    if not args.network.startswith("@"):
      raise errors.InputError(
          f"`--network` ({args.network!r}) must be @ and a file, such as "
          "@links.json; write one with `tf_cdops doctor --cluster=… "
          "--out=links.json`, or name links with --inside and --across.")
    measured = links_file.read(args.network[1:], "--network")
  return given_links.resolve(measured, topology)


def changed(args: argparse.Namespace, network: cost.Network,
            several: bool) -> cost.Network:
  """Returns a network as flags change it, for one worker or several."""
  if args.inside is not None:
    network = dataclasses.replace(
        network, inside=cost.preset(args.inside, "--inside"))
  if args.across is not None:
    network = dataclasses.replace(
        network, across=cost.preset(args.across, "--across"))
    if not several:
      raise errors.InputError(
          f"`--across` ({args.across!r}) must come with several --workers: one "
          "has no links across; leave it out, or give --workers=2.")
  changes = {}
  if args.latency is not None:
    changes["latency_seconds"] = _parse_latency(args.latency)
  if args.bandwidth is not None:
    changes["bytes_per_second"] = rates.parse(args.bandwidth, "--bandwidth")
  if not changes:
    return network
  which = "across" if several else "inside"
  link = dataclasses.replace(getattr(network, which), name="as given",
                             **changes)
  return dataclasses.replace(network, **{which: link})


def _parse_latency(given: str) -> float:
  """Returns seconds."""
  match = _NUMBER.fullmatch(given.strip())
  if not match or match[2] not in _LATENCIES or not float(match[1]):
    raise errors.InputError(
        f"`--latency` ({given!r}) must be a positive number with a unit "
        f"({', '.join(_LATENCIES)}), such as 5us.")
  return float(match[1]) * _LATENCIES[match[2]]
