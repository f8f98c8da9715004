"""The targets for SpmdStrategy, as data, and whether they are met.

All are ratios to MultiWorkerMirroredStrategy in float32.
"""

import dataclasses
from collections.abc import Callable, Iterable

from benchmarks import cells as all_cells
from benchmarks import verdicts
from benchmarks.spmd import cells


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


def judge(measured: Iterable[cells.Measured]) -> list[verdicts.Verdict]:
  """Returns a verdict for each target in each cell that was measured."""
  measured = list(measured)
  return [_verdict(target, one) for target in TARGETS for one in measured
          if target.covers(one.cell)]


def seconds(target: Target, measured: cells.Measured,
            name: str) -> tuple[float, ...]:
  """Returns the times of a contender that a target is about."""
  return (measured.unhidden(name) if target.unhidden
          else measured.of(name).seconds)


def _verdict(target: Target, measured: cells.Measured) -> verdicts.Verdict:
  return verdicts.verdict(
      target, measured.cell, all_cells.MULTI_WORKER,
      seconds(target, measured, target.contender),
      seconds(target, measured, all_cells.MULTI_WORKER),
      measured.of(target.contender).wrong)
