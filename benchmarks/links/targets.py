"""The targets for "auto" between hosts, as data, and whether they are met."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable

from benchmarks import cells as all_cells
from benchmarks import verdicts
from benchmarks.links import cells

Cell = cells.Cell
# Whom "auto" is held against, beside families of `benchmarks.cells`.
BEST_SPEC, LEAST, ANY = "the best other spec", "least", "the best of all"


@dataclasses.dataclass(frozen=True)
class Target:
  """A limit for the ratio of auto's time to another's, in some cells.

  Attributes:
    text: what it is about, for people.
    against: a family, or one of the above.
    limit: the largest ratio that meets it.
    covers: says in which cells.
    mean: the largest geometric mean over all of them; None for none.
  """

  text: str
  against: str
  limit: float
  covers: Callable[[Cell], bool]
  mean: float | None = None


def _sure(cell: Cell) -> bool:
  return (cell.is_large and cell.hosts == 4 and cell.rate == cells.SLOW
          and cell.num_bytes >= 32 << 20)


def _is_large(cell: Cell) -> bool:
  return cell.is_large


TARGETS = (
    Target("of the best other spec", BEST_SPEC, 1.10, _is_large),
    Target("of least, 200 Mbit/s", LEAST, 1.25,
           lambda cell: cell.is_large and cell.rate == cells.SLOW
           and not _sure(cell)),
    Target("of least, 200 Mbit/s, 4 hosts, 32 MB or more", LEAST, 1.15, _sure),
    Target("the quickest of all, 1 Gbit/s, 8 hosts", ANY, 1.0,
           lambda cell: cell.is_large and cell.rate == cells.FAST
           and cell.hosts == 8),
    Target("of MultiWorkerMirroredStrategy", all_cells.MULTI_WORKER, 1.03,
           _is_large, 0.93),
    Target("of Gloo", all_cells.GLOO, 1.05, _is_large, 0.98),
    Target("500 of 1 KB, of MultiWorkerMirroredStrategy",
           all_cells.MULTI_WORKER, 1.5, lambda cell: cell.load == "small"),
)
# Predicted by measured time of "auto" must be between these.
PREDICTED = (0.7, 1.4)


def judge(measured: Iterable[cells.Measured]) -> list[verdicts.Verdict]:
  """Returns a verdict for each target in each cell that was measured."""
  measured = list(measured)
  return [verdict for target in TARGETS for one in measured
          if target.covers(one.cell)
          for verdict in [_verdict(target, one)] if verdict]


def predicted(measured: cells.Measured) -> float:
  """Returns auto's predicted time by the measured."""
  assert measured.auto.predicted is not None
  return measured.auto.predicted / statistics.median(measured.auto.seconds)


def _verdict(target: Target,
             measured: cells.Measured) -> verdicts.Verdict | None:
  ours = measured.auto.seconds
  if target.against == LEAST:
    rival, theirs = LEAST, (measured.cell.least,) * len(ours)
  else:
    families = {BEST_SPEC: (all_cells.OURS,), ANY: (
        all_cells.OURS, all_cells.MULTI_WORKER, all_cells.GLOO)}.get(
            target.against, (target.against,))
    # One whose own sums are wrong is no rival.
    rivals = [one for family in families for one in measured.of(family)
              if not one.wrong]
    if not rivals:
      return None
    best = min(rivals, key=lambda one: statistics.median(one.seconds))
    rival, theirs = best.contender, best.seconds
  return verdicts.verdict(target, measured.cell, rival, ours, theirs,
                          measured.auto.wrong)
