"""The all-reduce spec: which algorithm, in how many shards, up to what size.

    nccl#2:32k:pscpu/pscpu#2

means: tensors of up to 32 KiB use nccl in 2 shards, the rest pscpu/pscpu in 2
shards. The same as tuples: [("nccl", 2, 32768), ("pscpu/pscpu", 2, -1)]. This
file knows the grammar; which names exist is the registry's to say.
"""

import collections
import dataclasses
import itertools
import json
import re
from collections.abc import Iterable
from typing import Any

from tf_cdops.base import errors

AUTO = "auto"
UNLIMITED = -1
# Of the files that `tune` writes and "@file.json" reads.
FILE_VERSION = 1
# A pack is a copy, so its size is what packing costs in memory.
DEFAULT_CAP = 64 << 20
FORM = "alg[#shards](:limit:alg[#shards])*, such as 'xring:64k:pscpu/pscpu#2'"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_BYTES = re.compile(r"(\d+)([kmg]?)", re.IGNORECASE)

AllReduceSpecTuple = collections.namedtuple("AllReduceSpecTuple",
                                            "alg shards limit")
AllReduceSpecTuple.__doc__ = """One line of a spec: tensors of up to `limit`
bytes use the algorithm `alg` in `shards` shards; -1 is no limit."""


@dataclasses.dataclass(frozen=True)
class Packing:
  """Which tensors are joined before they travel.

  Attributes:
    num_packs: that many packs, or 0 for none.
    small_max_bytes: where num_packs is 0, tensors up to this size are packed.
    small_max_group: at most this many of those in a pack; 0 for no pack.
    cap: the most bytes in a pack; a larger tensor stays alone.
  """

  num_packs: int = 0
  small_max_bytes: int = 0
  small_max_group: int = 10
  cap: int = DEFAULT_CAP

  @property
  def wanted(self) -> bool:
    """Whether the user said which, if only that none are."""
    return (self.num_packs > 0 or self.small_max_bytes > 0
            or self.small_max_group == 0)

  def arguments(self) -> dict[str, int]:
    """Returns it by the names of the classes' arguments, and of a file."""
    return {name: getattr(self, field) for name, field in _PACKING.items()}


# The field, by the name of an argument and of a file's key.
_PACKING = {"num_packs": "num_packs",
            "agg_small_grads_max_bytes": "small_max_bytes",
            "agg_small_grads_max_group": "small_max_group"}


class AllReduceSpec(tuple[AllReduceSpecTuple, ...]):
  """A checked spec. `str` gives the text that parses to its lines again.

  Text has no packing, but a file may: a spec with one differs from the same
  lines without.
  """

  _packing: Packing | None
  _file: str | None

  def __new__(cls, lines: Iterable[AllReduceSpecTuple],
              packing: Packing | None = None,
              file: str | None = None) -> "AllReduceSpec":
    spec = super().__new__(cls, lines)
    spec._packing, spec._file = packing, file
    return spec

  @property
  def packing(self) -> Packing | None:
    """What its file says of packing; None if nothing does."""
    return self._packing

  @property
  def file(self) -> str | None:
    """The file that it was read from; None if there was none."""
    return self._file

  def __eq__(self, other: object) -> bool:
    return isinstance(other, tuple) and super().__eq__(other) and (
        self._packing == getattr(other, "packing", None))

  def __ne__(self, other: object) -> bool:  # A tuple has one of its own.
    return not self == other

  __hash__ = tuple.__hash__

  def __str__(self) -> str:
    parts = []
    for alg, shards, limit in self:
      parts.append(alg if shards == 1 else f"{alg}#{shards}")
      if limit != UNLIMITED:
        parts.append(format_bytes(limit))
    return ":".join(parts)

  def __repr__(self) -> str:
    packing = "" if self._packing is None else f", {self._packing!r}"
    return f"AllReduceSpec({str(self)!r}{packing})"

  @property
  def is_auto(self) -> bool:
    """Whether the package is to choose."""
    return self[0].alg == AUTO

  def line_for(self, num_bytes: int | None) -> AllReduceSpecTuple:
    """Returns the line for a tensor's size; an unknown size gets the last."""
    for line in self:
      if line.limit == UNLIMITED or (
          num_bytes is not None and num_bytes <= line.limit):
        return line
    raise AssertionError("a checked spec ends with an unlimited line")


def parse(given: Any, argument: str = "all_reduce_spec") -> AllReduceSpec:
  """Returns a spec from its text, one tuple, or a list of tuples."""
  if isinstance(given, AllReduceSpec):
    return given
  if isinstance(given, str):
    if given.startswith("@"):
      return _from_file(given[1:], argument)
    lines = _parse_text(given, argument)
  elif isinstance(given, tuple) and given and isinstance(given[0], str):
    lines = [_parse_tuple(given, argument)]
  elif isinstance(given, (list, tuple)) and given:
    lines = [_parse_tuple(item, f"{argument}[{i}]")
             for i, item in enumerate(given)]
  else:
    raise errors.SpecError(
        f"`{argument}` ({given!r}) must be a text, a tuple (algorithm, shards, "
        f"limit) or a list of such tuples; the text's form is {FORM}.")
  _check_lines(lines, given, argument)
  return AllReduceSpec(lines)


def parse_bytes(text: str, argument: str) -> int:
  """Returns a number of bytes from "512", "32k", "1M" or "2g"."""
  match = _BYTES.fullmatch(text.strip())
  if not match:
    raise errors.SpecError(
        f"`{argument}` ({text!r}) must be a number of bytes such as 512, 32k, "
        "4m or 1g (powers of 1024).")
  return int(match[1]) * _UNITS[match[2].lower()]


def format_bytes(number: int) -> str:
  """Returns the shortest text that `parse_bytes` takes for a number."""
  for unit in ("g", "m", "k"):
    if number and number % _UNITS[unit] == 0:
      return f"{number // _UNITS[unit]}{unit}"
  return str(number)


def _parse_text(text: str, argument: str) -> list[AllReduceSpecTuple]:
  parts = [part.strip() for part in text.split(":")]
  if not all(parts):
    raise errors.SpecError(
        f"`{argument}` ({text!r}) has an empty part; the form is {FORM}.")
  if len(parts) % 2 == 0:
    raise errors.SpecError(
        f"`{argument}` ({text!r}) must end with an algorithm: nothing follows "
        f"the limit {parts[-1]!r}; the form is {FORM}.")
  limits = [parse_bytes(part, f"limit in {argument}") for part in parts[1::2]]
  lines = []
  for part, limit in zip(parts[::2], [*limits, UNLIMITED], strict=True):
    alg, *rest = part.split("#")
    shards = rest[0] if rest else "1"
    if len(rest) > 1 or not alg or not re.fullmatch(r"-?\d+", shards):
      raise errors.SpecError(
          f"`{argument}` has {part!r}, which must be an algorithm's name, or "
          "the name, '#' and a whole number of shards, such as 'xring#2'.")
    lines.append(AllReduceSpecTuple(alg, int(shards), limit))
  return lines


def _parse_tuple(item: Any, argument: str) -> AllReduceSpecTuple:
  if not isinstance(item, tuple) or not 1 <= len(item) <= 3:
    raise errors.SpecError(
        f"`{argument}` ({item!r}) must be a tuple of one to three: (algorithm, "
        "shards, limit); shards are 1 and the limit is -1 if left out.")
  return AllReduceSpecTuple(*item, *(1, UNLIMITED)[len(item) - 1:])


def _check_lines(lines: Iterable[AllReduceSpecTuple], given: Any,
                 argument: str) -> None:
  lines = list(lines)
  where = f"`{argument}` ({given!r})"
  for line in lines:
    if not isinstance(line.alg, str) or not line.alg:
      raise errors.SpecError(
          f"{where}: the algorithm ({line.alg!r}) must be a name.")
    if not errors.is_whole_number(line.shards, 1):
      raise errors.SpecError(
          f"{where}: the shards of {line.alg!r} ({line.shards!r}) must be a "
          "whole number of at least 1.")
    if not errors.is_whole_number(line.limit, UNLIMITED) or not line.limit:
      raise errors.SpecError(
          f"{where}: the limit of {line.alg!r} ({line.limit!r}) must be a "
          "positive number of bytes, or -1 for no limit.")
    if line.alg == AUTO and (len(lines) > 1 or line.shards != 1):
      raise errors.SpecError(
          f"{where}: {AUTO!r} chooses algorithms, shards and limits itself; it "
          "must stand alone.")
  if lines[-1].limit != UNLIMITED:
    raise errors.SpecError(
        f"{where}: the last limit ({lines[-1].limit}) must be -1, so that "
        "there is an algorithm for every size.")
  limits = [line.limit for line in lines[:-1]]
  if UNLIMITED in limits or any(
      after <= before for before, after in itertools.pairwise(limits)):
    raise errors.SpecError(
        f"{where}: the limits ({limits}) must rise, and only the last may be "
        "-1.")


def _from_file(path: str, argument: str) -> AllReduceSpec:
  try:
    with open(path, encoding="utf-8") as file:
      content = json.load(file)
  except (OSError, ValueError) as error:
    raise errors.SpecError(
        f"`{argument}` ('@{path}') must name a readable JSON file: "
        f"{error}.") from None
  if isinstance(content, dict):
    version = content.get("version", FILE_VERSION)  # By hand, without one.
    if version != FILE_VERSION or isinstance(version, bool):
      raise errors.SpecError(
          f"`{argument}` ('@{path}') must have the format version "
          f"{FILE_VERSION}, and it is {version!r}; run `tf_cdops tune` again, "
          "or update tf_cdops.")
  text = content.get("all_reduce_spec") if isinstance(content, dict) else None
  if not isinstance(text, str) or text.startswith("@"):
    raise errors.SpecError(
        f"`{argument}` ('@{path}') must name a JSON file with the text of a "
        "spec under the key 'all_reduce_spec'.")
  lines = parse(text, f"{argument}, read from {path}")
  return AllReduceSpec(lines, _packing_in(content, path, argument), path)


def _packing_in(content: dict[str, Any], path: str,
                argument: str) -> Packing | None:
  """Returns what a file says of packing; None if it doesn't."""
  fields = {}
  for key, field in _PACKING.items():
    if key not in content:
      continue
    number = content[key]
    if not errors.is_whole_number(number, 0):
      raise errors.SpecError(
          f"`{argument}` ('@{path}'): its {key!r} ({number!r}) must be a whole "
          "number of at least 0; correct it, or leave it out.")
    fields[field] = number
  return Packing(**fields) if fields else None
