"""The targets for SpmdStrategy, as data, and whether they are met.

All are ratios to MultiWorkerMirroredStrategy in float32. A cell misses its
target if the 95% interval of its ratios, round by round, lies wholly above it.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from benchmarks import cells as all_cells
from benchmarks.spmd import cells

from tf_cdops.cli.measuring import tuning


@dataclasses.dataclass(frozen=True)
class Target:
  """A limit for the ratio of one contender's time to TensorFlow's own.

  Attributes:
    text: what it is about, for people.
    contender: whose.
    limit: the largest ratio that meets it.
    covers: says in which cells.
    mean: the largest geometric mean over all of them; None for none.
    unhidden: whether the time is what a step takes beyond computing alone.
  """

  text: str
  contender: str
  limit: float
  covers: Callable[[cells.Cell], bool]
  mean: float | None = None
  unhidden: bool = False


def _is_large(cell: cells.Cell) -> bool:
  return cell.is_large


TARGETS = (
    Target("500 of 1 KB, loopback", all_cells.SPMD, 1.0,
           lambda cell: cell.rate == cells.LOOPBACK),
    Target("8 MB or more, between hosts", all_cells.SPMD, 1.05, _is_large,
           1.0),
    Target("8 MB or more, between hosts, bfloat16", all_cells.SPMD_HALF, 0.62,
           _is_large),
    Target("training, what isn't hidden behind computing", all_cells.SPMD, 0.7,
           lambda cell: cell.batch is not None, unhidden=True),
)


@dataclasses.dataclass(frozen=True)
class Verdict:
  """A target held against one cell.

  Attributes:
    target: what was wanted.
    cell: where.
    ratio: the median of the rounds' ratios.
    between: where it is, with a confidence of 95%.
    wrong: elements that weren't the sum.
  """

  target: Target
  cell: cells.Cell
  ratio: float
  between: tuple[float, float]
  wrong: int

  @property
  def met(self) -> bool:
    return self.between[0] <= self.target.limit and not self.wrong


def judge(measured: Iterable[cells.Measured]) -> list[Verdict]:
  """Returns a verdict for each target in each cell that was measured."""
  measured = list(measured)
  return [_verdict(target, one) for target in TARGETS for one in measured
          if target.covers(one.cell)]


def means(verdicts: Sequence[Verdict]) -> list[tuple[Target, float]]:
  """Returns the geometric means of targets that have a limit for them."""
  found = []
  for target in TARGETS:
    ratios = [v.ratio for v in verdicts if v.target is target]
    if target.mean is not None and ratios:
      found.append((target, math.exp(statistics.fmean(map(math.log, ratios)))))
  return found


def seconds(target: Target, measured: cells.Measured,
            name: str) -> tuple[float, ...]:
  """Returns the times of a contender that a target is about."""
  return (measured.unhidden(name) if target.unhidden
          else measured.of(name).seconds)


def _verdict(target: Target, measured: cells.Measured) -> Verdict:
  ratios = [a / b for a, b in zip(
      seconds(target, measured, target.contender),
      seconds(target, measured, all_cells.MULTI_WORKER), strict=True)]
  between = tuning.median_interval(ratios) or (min(ratios), max(ratios))
  return Verdict(target, measured.cell, statistics.median(ratios), between,
                 measured.of(target.contender).wrong)
