"""The links as users give them: a name, a file, or numbers of their own."""

import dataclasses
from typing import Any

from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import links_file
from tf_cdops.cost import network as network_lib

Network = network_lib.Network
Link = network_lib.Link
MeasuredLinks = links_file.MeasuredLinks
Given = Network | Link | MeasuredLinks


def check(given: Any, argument: str = "network") -> Given | None:
  """Returns the links that are meant; a name is that of one link."""
  if given is None or isinstance(given, Given):
    return given
  if isinstance(given, str) and given.startswith("@"):
    return links_file.read(given[1:], argument)
  if isinstance(given, str):
    return network_lib.preset(given, argument)
  raise errors.InputError(
      f"`{argument}` ({given!r}) must be a tf_cdops.Network, '@links.json' as "
      "`tf_cdops doctor --cluster=… --out=links.json` writes it, or the name "
      f"of a link: {', '.join(network_lib.PRESETS)}.")


def resolve(given: Given | None, topology: topology_lib.Topology) -> Network:
  """Returns the links of some devices; a link is the one between workers.

  Where there is one worker, it is the one between its devices. What wasn't
  measured is as such devices commonly have it.
  """
  if isinstance(given, Network):
    return given
  common = Network.common(topology)
  if given is None:
    return common
  if isinstance(given, MeasuredLinks):
    return given.replacing(common)
  if len(topology.workers) == 1:
    return dataclasses.replace(common, inside=given)
  return dataclasses.replace(common, across=given)


def uncommon(network: Network,
             topology: topology_lib.Topology) -> MeasuredLinks | None:
  """Returns the links that such devices don't commonly have; None if none."""
  common = Network.common(topology)
  links = MeasuredLinks(
      None if network.inside == common.inside else network.inside,
      None if network.across == common.across else network.across)
  return links if links.inside or links.across else None
