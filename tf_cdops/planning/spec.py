"""The all-reduce spec: which algorithm, in how many shards, up to what size.

    nccl#2:32k:pscpu/pscpu#2

means: tensors of up to 32 KiB use nccl in 2 shards, the rest pscpu/pscpu in 2
shards. The same as tuples: [("nccl", 2, 32768), ("pscpu/pscpu", 2, -1)]. This
file knows the grammar; which names exist is the registry's to say.
"""

import collections
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.planning import buckets
from tf_cdops.planning import packs
from tf_cdops.planning import pinned
from tf_cdops.planning import spec_file

AUTO = "auto"
UNLIMITED = -1
_MOST_SHARDS = 1 << 16  # Each has its ops; beyond, a number was mistyped.
FORM = "alg[#shards](:limit:alg[#shards])*, such as 'xring:64k:pscpu/pscpu#2'"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_BYTES = re.compile(r"(\d+)([kmg]?)", re.IGNORECASE)

AllReduceSpecTuple = collections.namedtuple("AllReduceSpecTuple",
                                            "alg shards limit")
AllReduceSpecTuple.__doc__ = """One line of a spec: tensors of up to `limit`
bytes use the algorithm `alg` in `shards` shards; -1 is no limit."""


class AllReduceSpec(tuple[AllReduceSpecTuple, ...]):
  """A checked spec. `str` gives the text that parses to its lines again.

  Text has no packing, links or plans, but a file may: a spec with any of them
  differs from the same lines without.
  """

  _packing: packs.Packing | None
  _network: given_links.MeasuredLinks | None
  _plans: tuple[pinned.PinnedPlan, ...]
  _file: str | None
  _wire: spec_file.NamedWire | None

  def __new__(cls, lines: Iterable[AllReduceSpecTuple],
              packing: packs.Packing | None = None, *,
              network: given_links.MeasuredLinks | None = None,
              plans: Iterable[pinned.PinnedPlan] = (),
              file: str | None = None,
              wire: spec_file.NamedWire | None = None) -> "AllReduceSpec":
    spec = super().__new__(cls, lines)
    spec._packing, spec._network = packing, network
    spec._plans, spec._file, spec._wire = tuple(plans), file, wire
    return spec

  @property
  def packing(self) -> packs.Packing | None:
    """What its file says of packing; None if nothing does."""
    return self._packing

  @property
  def network(self) -> given_links.MeasuredLinks | None:
    """The links that its file has; None if there are none."""
    return self._network

  @property
  def plans(self) -> tuple[pinned.PinnedPlan, ...]:
    """The plans that its file pins."""
    return self._plans

  @property
  def file(self) -> str | None:
    """The file that it was read from; None if there was none."""
    return self._file

  def wire_for(self, wire: Any, scope: str) -> registry.Wire | None:
    """Returns the wire that arguments mean, or else that of its file."""
    given = registry.check_wire(wire, scope)
    if given is not None or self._wire is None:
      return given
    try:
      return registry.check_wire(*self._wire)
    except errors.InputError as error:
      raise errors.SpecError(f"`all_reduce_spec` ('@{self._file}'): {error}"
                             ) from None

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, AllReduceSpec):
      return self._extras() == _NO_EXTRAS and super().__eq__(other)
    return super().__eq__(other) and self._extras() == other._extras()

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
    parts = [repr(str(self))]
    if self._packing is not None:
      parts.append(repr(self._packing))
    if self._network is not None:
      parts.append(repr(self._network))
    if self._wire is not None:
      parts.append(f"wire={self._wire.name!r}")
    if self._plans:  # Too long to show.
      parts.append(f"{len(self._plans)} plans of {self._file!r}")
    return f"AllReduceSpec({', '.join(parts)})"

  @property
  def algorithms(self) -> tuple[str, ...]:
    """The names in its lines and plans, each once; "auto" is none."""
    names = [line.alg for line in self if line.alg != AUTO]
    names += [bucket.algorithm for plan in self._plans
              for bucket in plan.buckets]
    return tuple(dict.fromkeys(names))

  @property
  def is_auto(self) -> bool:
    """Whether the package is to choose."""
    return self[0].alg == AUTO

  def with_lines(self, lines: "AllReduceSpec") -> "AllReduceSpec":
    """Returns other lines, with what the file says beside them."""
    return AllReduceSpec(lines, self._packing, network=self._network,
                         plans=self._plans, file=self._file, wire=self._wire)

  def without_packing(self) -> "AllReduceSpec":
    """Returns the same but for what the file says of packing."""
    return AllReduceSpec(self, network=self._network, plans=self._plans,
                         file=self._file, wire=self._wire)

  def pinned_plan(self, sizes: Sequence[buckets.TensorSize],
                  topology: topology_lib.Topology) -> pinned.PinnedPlan | None:
    """Returns the file's plan for a batch; None if it has none."""
    if not self._plans:
      return None
    batch = pinned.Batch.of(sizes, topology)
    return next((plan for plan in self._plans if plan.batch == batch), None)

  def line_for(self, num_bytes: int | None) -> AllReduceSpecTuple:
    """Returns the line for a tensor's size; an unknown size gets the last."""
    for line in self:
      if line.limit == UNLIMITED or (
          num_bytes is not None and num_bytes <= line.limit):
        return line
    raise AssertionError("a checked spec ends with an unlimited line")

  def _extras(self) -> tuple[Any, ...]:
    return self._packing, self._network, self._plans, self._wire


_NO_EXTRAS = (None, None, (), None)


def parse(given: Any, argument: str = "all_reduce_spec") -> AllReduceSpec:
  """Returns a spec from its text, one tuple, or a list of tuples."""
  if isinstance(given, AllReduceSpec):
    return given
  if isinstance(given, str):
    if given.startswith("@"):
      path = given[1:]
      found = spec_file.read(path, argument)
      return AllReduceSpec(
          parse(found.text, f"{argument}, read from {path}"), found.packing,
          network=found.network, plans=found.plans, file=path,
          wire=found.wire)
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
    if not errors.is_whole_number(line.shards, 1, _MOST_SHARDS):
      raise errors.SpecError(
          f"{where}: the shards of {line.alg!r} ({line.shards!r}) must be a "
          f"whole number from 1 to {_MOST_SHARDS:,}.")
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
