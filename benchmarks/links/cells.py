"""What is measured between hosts with cables, and what is kept of it."""

import dataclasses
import itertools
from typing import Any

from benchmarks import cells
from benchmarks import workloads

from tf_cdops.base import rates

AUTO = "auto"
SLOW, FAST = "200mbit", "1gbit"
LOADS = {
    "resnet": "the gradients of ResNet-50: 214 tensors, 102 MB",
    "one": "one tensor of 64 MB",
    "big": "4 of 16 MB",
    "uneven": "one of 16 MB and 60 of 4 KB",
    "mobilenet": "the gradients of MobileNetV2: 158 tensors, 14 MB",
    "small": "500 of 1 KB",
}
# Smaller loads have no targets of bandwidth: messages are all there is.
LARGE = 8_000_000
# Bytes of all devices' tensors, of which 24 GB have no room for the copies of
# three contenders at once.
_VAST = 1_500_000_000


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
  """One comparison: hosts with so many devices each, on cables of a rate."""

  hosts: int
  devices: int
  rate: str
  load: str

  def __str__(self) -> str:
    return f"{self.hosts}x{self.devices}/{self.rate}/{self.load}"

  @property
  def num_bytes(self) -> int:
    return workloads.named(self.load).num_bytes

  @property
  def is_large(self) -> bool:
    return self.num_bytes >= LARGE

  @property
  def is_vast(self) -> bool:
    return self.hosts * self.devices * self.num_bytes > _VAST

  @property
  def least(self) -> float:
    """The seconds that no all-reduce can beat."""
    return (2 * (self.hosts - 1) / self.hosts * self.num_bytes
            / rates.parse(self.rate, "rate"))


@dataclasses.dataclass(frozen=True)
class Contender:
  """One contender of a cell; what only ours have is None for others.

  Attributes:
    contender: its name.
    family: one of `benchmarks.cells`.
    wrong: elements, over all devices, that weren't the exact sum.
    seconds: of each round; those of one round ran one after another.
    plan: what goes how, in words.
    predicted: seconds.
    messages: that the busiest worker handles, by the model.
    build_seconds: of the all-reduce alone.
    nodes: of the all-reduce alone.
  """

  contender: str
  family: str
  wrong: int
  seconds: tuple[float, ...]
  plan: str | None = None
  predicted: float | None = None
  messages: int | None = None
  build_seconds: float | None = None
  nodes: int | None = None


@dataclasses.dataclass(frozen=True)
class Measured:
  """A cell's outcome.

  Attributes:
    cell: which.
    date: when.
    links: the medians of its links, as TensorFlow's transfers see them.
    contenders: who ran.
    notes: who didn't, and why.
  """

  cell: Cell
  date: str
  links: dict[str, Any]
  contenders: tuple[Contender, ...]
  notes: tuple[str, ...] = ()

  @property
  def auto(self) -> Contender:
    return next(one for one in self.contenders if one.contender == AUTO)

  def of(self, family: str) -> list[Contender]:
    """Returns those of a family, but not "auto"."""
    return [one for one in self.contenders
            if one.family == family and one.contender != AUTO]

  def to_dict(self) -> dict[str, Any]:
    return dataclasses.asdict(self)

  @classmethod
  def from_dict(cls, content: dict[str, Any]) -> "Measured":
    return cls(
        Cell(**content["cell"]), content["date"], content["links"],
        tuple(Contender(**one | {"seconds": tuple(one["seconds"])})
              for one in content["contenders"]), tuple(content["notes"]))


def all_cells() -> list[Cell]:
  """Returns all, so that those of the same hosts follow each other."""
  return [Cell(hosts, devices, rate, load) for devices, hosts, rate, load in
          itertools.product((1, 2), (4, 8, 2), (SLOW, FAST), LOADS)]


def quick_cells() -> list[Cell]:
  """Returns those that say most in 25 minutes."""
  return [*(Cell(4, 1, rate, load) for rate in (SLOW, FAST)
            for load in ("big", "uneven")),
          Cell(4, 1, FAST, "mobilenet"), Cell(4, 1, FAST, "small"),
          Cell(4, 2, FAST, "big"), Cell(8, 1, FAST, "resnet")]


def wrong_of_ours(measured: list[Measured]) -> int:
  """Returns how many elements of our results weren't the exact sum."""
  return sum(one.wrong for cell in measured for one in cell.contenders
             if one.family == cells.OURS)
