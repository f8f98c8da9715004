"""Reads links as they were measured: the file of `tf_cdops doctor --out`.

    {"version": 1,
     "summary": {
         "inside": null,
         "across": {"latency_seconds": 2e-4, "bytes_per_second": 1.2e9,
                    "message_seconds": 6e-5}}}

The summary's numbers are medians; null stands for links that there were none
of. A link may have a "name", too. What else is in the file, each measured
pair, is for people.
"""

import dataclasses
import json
import math
from typing import Any

from tf_cdops.base import errors
from tf_cdops.cost import network as network_lib

FILE_VERSION = 1
# Of a link's numbers: whether it must be there, and may be 0.
_NUMBERS = {"latency_seconds": (True, True), "bytes_per_second": (True, False),
            "message_seconds": (False, True)}
_COPIED_BYTES_PER_SECOND = 5e9  # As `Network.common` has it for CPUs.
_REMEDY = ("measure again with `tf_cdops doctor --cluster=HOST:PORT,… "
           "--out=links.json`")


@dataclasses.dataclass(frozen=True)
class MeasuredLinks:
  """Links that a file has; None for those that it has null for."""

  inside: network_lib.Link | None
  across: network_lib.Link | None

  def replacing(self, default: network_lib.Network) -> network_lib.Network:
    """Returns a network with these links, and else the default's."""
    return dataclasses.replace(default, inside=self.inside or default.inside,
                               across=self.across or default.across)

  def summary(self) -> dict[str, Any]:
    """Returns what `from_summary` takes."""
    return {"inside": _numbers(self.inside, "inside"),
            "across": _numbers(self.across, "across")}


def network_from_file(path: str, default: network_lib.Network | None = None,
                      argument: str = "path") -> network_lib.Network:
  """Returns the links "measured inside" and "measured across" of a file.

  Args:
    path: the file.
    default: has what the file has null for; presets if None.
    argument: what an error calls the file.
  """
  if default is None:
    default = network_lib.Network(network_lib.preset("memory"),
                                  network_lib.preset("100gbe"),
                                  _COPIED_BYTES_PER_SECOND)
  return read(path, argument).replacing(default)


def read(path: str, argument: str = "path") -> MeasuredLinks:
  """Returns the links of a file; `argument` is what an error calls it."""
  where = f"`{argument}` ({path!r})"
  try:
    with open(path, encoding="utf-8") as file:
      content = json.load(file)
  except (OSError, ValueError) as error:
    raise errors.InputError(
        f"{where} must be a readable JSON file: {error}; {_REMEDY}.") from None
  if not isinstance(content, dict) or not isinstance(
      content.get("summary"), dict):
    raise errors.InputError(
        f"{where} must be a JSON object with the object 'summary'; {_REMEDY}.")
  version = content.get("version", FILE_VERSION)  # By hand, without one.
  if version != FILE_VERSION or isinstance(version, bool):
    raise errors.InputError(
        f"{where} must have the format version {FILE_VERSION}, and it is "
        f"{version!r}; {_REMEDY}, or update tf_cdops.")
  return from_summary(content["summary"], where, "summary")


def from_summary(summary: dict[str, Any], where: str, key: str,
                 remedy: str = _REMEDY) -> MeasuredLinks:
  """Returns the links of a checked summary.

  Args:
    summary: as `MeasuredLinks.summary` returns it.
    where: begins an error: which file it is in.
    key: what the file calls it.
    remedy: ends an error.
  """
  links: dict[str, network_lib.Link | None] = {}
  for which in ("inside", "across"):
    if which not in summary:
      raise errors.InputError(
          f"{where} must have {which!r} in its {key!r}, null if there are no "
          f"such links; {remedy}.")
    links[which] = None if summary[which] is None else _link(
        summary[which], which, where, remedy)
  return MeasuredLinks(**links)


def _link(numbers: Any, which: str, where: str,
          remedy: str) -> network_lib.Link:
  if not isinstance(numbers, dict):
    raise errors.InputError(
        f"{where}: its {which!r} ({numbers!r}) must be null or an object with "
        f"{', '.join(_NUMBERS)}; {remedy}.")
  found = []
  for key, (needed, may_be_0) in _NUMBERS.items():
    number = numbers.get(key, None if needed else 0.0)
    if (isinstance(number, bool) or not isinstance(number, (int, float))
        or not (0 < number < math.inf or (may_be_0 and number == 0))):
      raise errors.InputError(
          f"{where}: {key!r} ({number!r}) of its {which!r} must be a number "
          f"{'of at least' if may_be_0 else 'above'} 0; {remedy}.")
    found.append(float(number))
  name = numbers.get("name", _default_name(which))
  if not isinstance(name, str):
    raise errors.InputError(
        f"{where}: 'name' ({name!r}) of its {which!r} must be a text; "
        f"{remedy}.")
  return network_lib.Link(name, *found)


def _numbers(link: network_lib.Link | None,
             which: str) -> dict[str, Any] | None:
  if link is None:
    return None
  named = {} if link.name == _default_name(which) else {"name": link.name}
  return named | {key: getattr(link, key) for key in _NUMBERS}


def _default_name(which: str) -> str:
  return f"measured {which}"
