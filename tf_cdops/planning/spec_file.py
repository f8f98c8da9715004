"""The file of "@file.json": a spec, and all that goes with it.

    {"version": 1,
     "all_reduce_spec": "auto",
     "num_packs": 0,
     "wire": "bfloat16",
     "links": {"inside": null, "across": {…}},
     "plans": [{…}]}

Only the spec must be there. The keys of packing and of the wire, which may have
its "wire_scope", are the arguments' names, the links are as `cost.links_file`
has them, and plans as `pinned` has them.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import version
from tf_cdops.cost import given
from tf_cdops.cost import links_file
from tf_cdops.planning import packs
from tf_cdops.planning import pinned

FILE_VERSION = 1


class NamedWire(NamedTuple):
  """A wire as files have it; whether there is such a codec, its users see."""

  name: str
  scope: str


@dataclasses.dataclass(frozen=True)
class FileContent:
  """What a file says.

  Attributes:
    text: the spec's.
    packing: what is joined; None if nothing is said.
    network: the links; None if nothing is said.
    plans: of batches that are done exactly so.
    wire: how messages are encoded; None if nothing is said.
  """

  text: str
  packing: packs.Packing | None
  network: given.MeasuredLinks | None
  plans: tuple[pinned.PinnedPlan, ...]
  wire: NamedWire | None = None


def read(path: str, argument: str) -> FileContent:
  """Returns what a file says, checked but for the spec's own text."""
  where = f"`{argument}` ('@{path}')"
  try:
    with open(path, encoding="utf-8") as file:
      content = json.load(file)
  except (OSError, ValueError) as error:
    raise errors.SpecError(
        f"{where} must name a readable JSON file: {error}.") from None
  if isinstance(content, dict):
    found = content.get("version", FILE_VERSION)  # By hand, without one.
    if found != FILE_VERSION or isinstance(found, bool):
      raise errors.SpecError(
          f"{where} must have the format version {FILE_VERSION}, and it is "
          f"{found!r}; run `tf_cdops tune` again, or update tf_cdops.")
  text = content.get("all_reduce_spec") if isinstance(content, dict) else None
  if not isinstance(text, str) or text.startswith("@"):
    raise errors.SpecError(
        f"{where} must name a JSON file with the text of a spec under the key "
        "'all_reduce_spec'.")
  return FileContent(text, _packing(content, where), _network(content, where),
                     _plans(content, where), _wire(content, where))


def content(text: str, packing: packs.Packing,
            network: given.MeasuredLinks | None = None,
            plans: Sequence[pinned.PinnedPlan] = (),
            wire: registry.Wire | None = None) -> dict[str, Any]:
  """Returns what a file is to hold."""
  return {
      "version": FILE_VERSION,
      "tf_cdops": version.__version__,
      "all_reduce_spec": text,
      **packing.arguments(),
      **({"wire": wire.codec.name, "wire_scope": wire.scope} if wire else {}),
      "links": network.summary() if network else None,
      **({"plans": [plan.to_dict() for plan in plans]} if plans else {}),
  }


def write(path: str | os.PathLike[str], holding: dict[str, Any]) -> None:
  """Writes a file; raises if that can't be."""
  text = json.dumps(holding, indent=1)
  try:
    with open(path, "w", encoding="utf-8") as file:
      file.write(text + "\n")
  except OSError as error:
    raise errors.InputError(
        f"`path` ({os.fspath(path)!r}) must be a file that can be written: "
        f"{error.strerror}; name another.") from None


def _packing(content: dict[str, Any], where: str) -> packs.Packing | None:
  fields = {}
  for key, field in packs.ARGUMENTS.items():
    if key not in content:
      continue
    number = content[key]
    if not errors.is_whole_number(number, 0):
      raise errors.SpecError(
          f"{where}: its {key!r} ({number!r}) must be a whole number of at "
          "least 0; correct it, or leave it out.")
    fields[field] = number
  return packs.Packing(**fields) if fields else None


def _wire(content: dict[str, Any], where: str) -> NamedWire | None:
  name = content.get("wire")
  if name is None:
    return None
  scope = content.get("wire_scope", "across")
  if not isinstance(name, str) or not isinstance(scope, str):
    raise errors.SpecError(
        f"{where}: its 'wire' ({name!r}) and 'wire_scope' ({scope!r}) must be "
        "texts, such as 'bfloat16' and 'across'; correct them, or leave them "
        "out.")
  return NamedWire(name, scope)


def _network(content: dict[str, Any],
             where: str) -> given.MeasuredLinks | None:
  links = content.get("links")
  if links is None:
    return None
  remedy = "correct it, leave 'links' out, or run `tf_cdops tune` again"
  if not isinstance(links, dict):
    raise errors.SpecError(
        f"{where}: its 'links' ({links!r}) must be an object with 'inside' and "
        f"'across'; {remedy}.")
  return links_file.from_summary(links, where, "links", remedy)


def _plans(content: dict[str, Any],
           where: str) -> tuple[pinned.PinnedPlan, ...]:
  plans = content.get("plans", [])
  if not isinstance(plans, list):
    raise errors.SpecError(
        f"{where}: its 'plans' must be a list; correct it, or leave it out.")
  found: dict[pinned.Batch, pinned.PinnedPlan] = {}
  for i, plan in enumerate(plans):
    checked = pinned.from_dict(plan, f"{where}: its plan {i}")
    if checked.batch in found:
      raise errors.SpecError(
          f"{where}: its plan {i} must have other workers or tensors than the "
          "plans before it; leave one of them out.")
    found[checked.batch] = checked
  return tuple(found.values())
