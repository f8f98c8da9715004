"""What the suite measures, and what it keeps of it: plain values."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from tf_cdops.cli.measuring import timing

# Who was measured. TensorFlow's are the four that a user can choose.
OURS, TENSORFLOW, FLOOR = "ours", "tensorflow", "floor"
NOTHING = "nothing"  # What a step takes that reduces nothing.
EXTRA = "extra"  # Shown beside, held against no target.
MULTI_WORKER, GLOO = "MultiWorkerMirroredStrategy", "Gloo"
# Contenders of the family OURS where each worker runs a program of its own.
SPMD, SPMD_HALF = "SpmdStrategy", "SpmdStrategy, bfloat16"

GRAPH, EAGER, WORKERS = "graph", "eager", "workers"
NO_LIMIT = "40gbit"  # More than this machine sends to itself.
LOOPBACK = "loopback"  # Instead of a rate: no cables.


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
  """One comparison.

  Attributes:
    mode: one of GRAPH, EAGER and WORKERS.
    load: a name of `workloads`.
    devices: how many replicas; with WORKERS, one on each.
  """

  mode: str
  load: str
  devices: int

  def __str__(self) -> str:
    return f"{self.mode}/{self.load}/{self.devices}"


@dataclasses.dataclass(frozen=True)
class Result(timing.Summary):
  """One contender in a cell, and the seconds that its steps took.

  Attributes:
    contender: its name.
    family: one of the constants above.
    wrong: elements, over all devices, that weren't the exact sum.
    build_seconds: of the all-reduce alone; 0 where there is no such thing.
    nodes: in the graph, of the all-reduce alone.
  """

  contender: str
  family: str
  wrong: int
  build_seconds: float = 0.0
  nodes: int = 0


@dataclasses.dataclass(frozen=True)
class Measured:
  """A cell's outcome; `notes` say who couldn't run, and why."""

  cell: Cell
  results: tuple[Result, ...]
  notes: tuple[str, ...] = ()

  def of(self, family: str) -> list[Result]:
    return [result for result in self.results if result.family == family]

  def to_dict(self) -> dict[str, Any]:
    return dataclasses.asdict(self)

  @classmethod
  def from_dict(cls, content: dict[str, Any]) -> "Measured":
    return cls(Cell(**content["cell"]),
               tuple(Result(**result) for result in content["results"]),
               tuple(content["notes"]))


def all_cells() -> list[Cell]:
  """Returns every cell of the targets, and those of four workers."""
  graph = [Cell(GRAPH, load, devices) for devices in (2, 4, 8)
           for load in ("resnet", "small", "big")]
  eager = [Cell(EAGER, load, 8) for load in ("resnet", "small")]
  workers = [Cell(WORKERS, load, count) for count in (2, 4)
             for load in ("resnet", "small", "big")]
  return graph + eager + workers


def quick_cells() -> list[Cell]:
  """Returns a few, to see that the suite works."""
  return [Cell(GRAPH, "resnet", 2), Cell(GRAPH, "small", 2),
          Cell(EAGER, "small", 8), Cell(WORKERS, "small", 2)]


def matching(names: Iterable[Any], pattern: str) -> list[Any]:
  """Returns those in whose text the regular expression is found."""
  return [name for name in names if re.search(pattern, str(name))]


def wrong_of_ours(measured: Sequence[Measured]) -> int:
  """Returns how many elements of our results weren't the exact sum."""
  return sum(result.wrong for one in measured for result in one.results
             if result.family == OURS)
