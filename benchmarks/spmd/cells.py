"""What is measured of programs that reduce together, and what is kept of it."""

import dataclasses
import itertools
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import workloads
from benchmarks.links import cells as link_cells

LOOPBACK = all_cells.LOOPBACK
_TRAINING = "train"
# Batches with which computing takes less time than communication does, about
# 0.85 times as long, and more, about 1.6 times as long.
_BATCHES = {link_cells.SLOW: (80, 160), link_cells.FAST: (16, 32)}


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
  """One comparison.

  Attributes:
    hosts: how many, with a program of each contender on each.
    rate: of their cables, or LOOPBACK for none.
    load: a name of `workloads`, or "train80" for training with that batch.
  """

  hosts: int
  rate: str
  load: str

  def __str__(self) -> str:
    return f"{self.hosts}/{self.rate}/{self.load}"

  @property
  def batch(self) -> int | None:
    """The images of each worker; None where nothing is trained."""
    text = self.load.removeprefix(_TRAINING)
    return int(text) if text != self.load else None

  @property
  def num_bytes(self) -> int:
    """Of what is all-reduced; 0 for training."""
    return 0 if self.batch else workloads.named(self.load).num_bytes

  @property
  def is_large(self) -> bool:
    return self.num_bytes >= link_cells.LARGE

  @property
  def least(self) -> float | None:
    """The seconds that no all-reduce can beat; None where none are known."""
    if self.batch or self.rate == LOOPBACK:
      return None
    return link_cells.Cell(self.hosts, 1, self.rate, self.load).least


@dataclasses.dataclass(frozen=True)
class Contender:
  """One contender of a cell.

  Attributes:
    contender: its name.
    family: one of `benchmarks.cells`.
    wrong: elements, over all programs, that weren't the sum.
    seconds: of each round; those of one round ran one after another.
  """

  contender: str
  family: str
  wrong: int
  seconds: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Measured:
  """A cell's outcome."""

  cell: Cell
  date: str
  contenders: tuple[Contender, ...]

  def of(self, name: str) -> Contender:
    """Returns the contender whose name begins so; the first of several."""
    return next(one for one in self.contenders
                if one.contender.startswith(name))

  def unhidden(self, name: str) -> tuple[float, ...]:
    """Returns how much longer than computing alone each step took."""
    one = self.of(name)
    alone = next(other for other in self.contenders
                 if other.family == one.family
                 and other.contender.endswith(all_cells.NOTHING))
    return tuple(a - b for a, b in zip(one.seconds, alone.seconds,
                                       strict=True))

  def to_dict(self) -> dict[str, Any]:
    return dataclasses.asdict(self)

  @classmethod
  def from_dict(cls, content: dict[str, Any]) -> "Measured":
    return cls(Cell(**content["cell"]), content["date"], tuple(
        Contender(**one | {"seconds": tuple(one["seconds"])})
        for one in content["contenders"]))


def every_cell() -> list[Cell]:
  """Returns all, so that those of the same hosts follow each other."""
  large = [load for load in link_cells.LOADS
           if workloads.named(load).num_bytes >= link_cells.LARGE]
  return [
      *(Cell(hosts, LOOPBACK, "small") for hosts in (2, 4)),
      *(Cell(4, rate, f"{_TRAINING}{batch}")
        for rate, batches in _BATCHES.items() for batch in batches),
      *(Cell(hosts, rate, load) for hosts, rate, load in itertools.product(
          (4, 2, 8), (link_cells.FAST, link_cells.SLOW), large))]
