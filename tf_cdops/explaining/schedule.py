"""The steps of one all-reduce: who sends what to whom, and which sums exist."""

import collections
import dataclasses
import textwrap
from collections.abc import Iterable

from tf_cdops import registry
from tf_cdops.base import device_names
from tf_cdops.base import topology as topology_lib
from tf_cdops.fabric import tracing
from tf_cdops.planning import planner
from tf_cdops.registry import proof

MOST_DEVICES = 16
_MOST_SHARDS = 4


@dataclasses.dataclass(frozen=True)
class Piece:
  """Parts start to stop of the vector, as a sum of some replicas."""

  start: int
  stop: int
  replicas: int

  def __str__(self) -> str:
    parts = (str(self.start) if self.stop == self.start + 1
             else f"{self.start}-{self.stop - 1}")
    return f"{parts}({self.replicas})"


@dataclasses.dataclass(frozen=True)
class Transfer:
  """Pieces that go from one place to another."""

  source: int
  target: int
  pieces: tuple[Piece, ...]
  across: bool


@dataclasses.dataclass(frozen=True)
class Step:
  """What happens side by side.

  Attributes:
    transfers: what goes where.
    sums: for each place that adds, the pieces it then has.
    engine: TensorFlow's engine that does all of it, "" if none.
    held: for each place, for each part of the vector, the most replicas in
      any sum of it that the place has after the step.
  """

  transfers: tuple[Transfer, ...]
  sums: tuple[tuple[int, tuple[Piece, ...]], ...]
  engine: str
  held: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Schedule:
  """One all-reduce, step by step.

  Attributes:
    algorithm: its name.
    shards: in how many.
    devices: how many of the places are replicas' devices; hosts follow.
    places: short names, such as "0:3" for the fourth device of worker 0.
    workers: the worker of each place.
    start: what each place holds at first.
    steps: what happens.
    stands_in: whether these are fewer devices or shards than asked for.
  """

  algorithm: str
  shards: int
  devices: int
  places: tuple[str, ...]
  workers: tuple[int, ...]
  start: tuple[tuple[int, ...], ...]
  steps: tuple[Step, ...]
  stands_in: bool


def for_bucket(bucket: planner.Bucket,
               topology: topology_lib.Topology) -> Schedule:
  """Proves a bucket's algorithm and returns its steps.

  The vector is as short as can be, so that each part of it is one element.
  Large topologies are stood in for by smaller ones.
  """
  small = _small(topology)
  shards = min(bucket.shards, _MOST_SHARDS)
  parts = len(small.devices) * shards
  algorithm = registry.lookup(bucket.algorithm, shards)
  trace = proof.prove(algorithm, small, parts, bucket.rotation)
  return _Reader(small, trace).read(
      bucket.algorithm, shards, small != topology or shards != bucket.shards)


def text(schedule: Schedule, width: int = 100) -> str:
  """Returns the steps as text, in lines of up to `width` columns."""
  several, parts = len(set(schedule.workers)) > 1, len(schedule.start[0])
  shards = f"{schedule.shards} shard{'s' * (schedule.shards > 1)}"
  count = len(schedule.steps)
  head = (f"{schedule.algorithm} on {schedule.devices} "
          f"device{'s' * (schedule.devices != 1)}, {shards}: {count} "
          f"step{'s' * (count != 1)}. "
          + ("Fewer devices or shards than asked for, to be legible. "
             if schedule.stands_in else "")
          + ("Devices are worker:device. " if several else "")
          + f"The vector has {parts} part{'s' * (parts != 1)}; 3(2) is part 3, "
          "summed over 2 replicas.")
  lines = [textwrap.fill(head, width)]
  for number, step in enumerate(schedule.steps, 1):
    lines.append("")
    if step.engine:
      lines.append(f"step {number}: {step.engine} sums, out of sight")
    if step.transfers:
      crossing = sum(transfer.across for transfer in step.transfers)
      count = len(step.transfers)
      lines.append(f"step {number}: {count} transfer{'s' * (count > 1)}"
                   + (f", {crossing} of them between workers" if several
                      else ""))
      lines.append(_list((
          f"{schedule.places[t.source]} → {schedule.places[t.target]}: "
          f"{_pieces(t.pieces)}" for t in step.transfers), width))
    if step.sums:
      lines.append("  sums there now are:")
      lines.append(_list((
          f"on {schedule.places[place]}: {_pieces(pieces)}"
          for place, pieces in step.sums), width))
  return "\n".join(lines)


def _pieces(pieces: Iterable[Piece]) -> str:
  return " ".join(map(str, pieces))


def _list(items: Iterable[str], width: int) -> str:
  """Joins items in columns of one width, as many as fit."""
  cells = list(items)
  each = max(map(len, cells)) + 3
  columns = max(1, (width - 4) // each)
  return "\n".join(
      "    " + "".join(cell.ljust(each) for cell in cells[i:i + columns])
      .rstrip() for i in range(0, len(cells), columns))


def _small(topology: topology_lib.Topology) -> topology_lib.Topology:
  if len(topology.devices) <= MOST_DEVICES:
    return topology
  workers = min(len(topology.workers), 4)
  most = max(len(ranks) for ranks in topology.workers)
  return topology_lib.Topology.grid(
      workers, min(most, MOST_DEVICES // workers),
      device_type="GPU" if "GPU" in topology.device_types else "CPU")


class _Reader:
  """Turns a trace into steps."""

  def __init__(self, topology: topology_lib.Topology, trace: proof.Trace):
    self._topology, self._trace = topology, trace
    used = {name for transfer in trace.transfers
            for name in (transfer.source, transfer.target)}
    hosts = [host for host in dict.fromkeys(topology.hosts)
             if host in used and host not in topology.devices]
    self._names = [*topology.devices, *hosts]
    owner = {rank: w for w, ranks in enumerate(topology.workers)
             for rank in ranks}
    self._workers = tuple(
        [owner[rank] for rank in range(len(topology.devices))]
        + [topology.hosts.index(host) for host in hosts])

  def read(self, algorithm: str, shards: int, stands_in: bool) -> Schedule:
    p, length = len(self._topology.devices), self._trace.length
    held = [[int(i < p)] * length for i in range(len(self._names))]
    start = tuple(map(tuple, held))
    steps = tuple(self._step(number, held)
                  for number in range(1, self._trace.steps + 1))
    return Schedule(algorithm, shards, p, self._places(), self._workers, start,
                    steps, stands_in)

  def _step(self, number: int, held: list[list[int]]) -> Step:
    transfers, engine = [], ""
    sums: dict[int, list[Piece]] = collections.defaultdict(list)
    for moved in self._trace.transfers:
      if moved.step == number:
        ends = self._place(moved.source), self._place(moved.target)
        pieces = self._known(moved.segments)
        transfers.append(Transfer(
            *ends, pieces, self._workers[ends[0]] != self._workers[ends[1]]))
        _hold(held[ends[1]], pieces)
    for made in self._trace.additions:
      if made.step == number:
        sums[self._place(made.place)] += self._known(made.segments)
        _hold(held[self._place(made.place)], self._known(made.segments))
    for native in self._trace.native_steps:
      if native.step == number:
        engine = native.engine
        for place in native.places:
          _hold(held[self._place(place)], self._known(native.segments))
    return Step(tuple(transfers),
                tuple((place, tuple(pieces)) for place, pieces in sums.items()),
                engine, tuple(map(tuple, held)))

  def _known(self, segments: Iterable[tracing.Segment]) -> tuple[Piece, ...]:
    return tuple(
        Piece(s.start, s.stop, self._trace.replicas[s.expression].bit_count())
        for s in segments)

  def _place(self, name: str) -> int:
    return self._names.index(name)

  def _places(self) -> tuple[str, ...]:
    several = len(self._topology.workers) > 1
    inside: collections.Counter[int] = collections.Counter()
    names = []
    for i, (name, worker) in enumerate(
        zip(self._names, self._workers, strict=True)):
      kind = (device_names.parse(name).type or "CPU").lower()
      label = (str(inside[worker]) if i < len(self._topology.devices)
               else kind)
      inside[worker] += 1
      names.append(f"{worker}:{label}" if several else label)
    return tuple(names)


def _hold(held: list[int], pieces: Iterable[Piece]) -> None:
  for piece in pieces:
    for part in range(piece.start, piece.stop):
      held[part] = max(held[part], piece.replicas)
