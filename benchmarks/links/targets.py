"""The targets for "auto" between hosts, as data, and whether they are met.

A cell misses its target if the 95% interval of its ratios, round by round,
lies wholly above the target.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from benchmarks import cells as all_cells
from benchmarks.links import cells

from tf_cdops.cli.measuring import tuning

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


@dataclasses.dataclass(frozen=True)
class Verdict:
  """A target held against one cell.

  Attributes:
    target: what was wanted.
    cell: where.
    rival: whom "auto" was held against.
    ratio: the median of the rounds' ratios.
    between: where it is, with a confidence of 95%.
    wrong: elements of auto's that weren't the exact sum.
  """

  target: Target
  cell: Cell
  rival: str
  ratio: float
  between: tuple[float, float]
  wrong: int

  @property
  def met(self) -> bool:
    return self.between[0] <= self.target.limit and not self.wrong


def judge(measured: Iterable[cells.Measured]) -> list[Verdict]:
  """Returns a verdict for each target in each cell that was measured."""
  measured = list(measured)
  return [verdict for target in TARGETS for one in measured
          if target.covers(one.cell)
          for verdict in [_verdict(target, one)] if verdict]


def means(verdicts: Sequence[Verdict]) -> list[tuple[Target, float]]:
  """Returns the geometric means of targets that have a limit for them."""
  found = []
  for target in TARGETS:
    ratios = [v.ratio for v in verdicts if v.target is target]
    if target.mean is not None and ratios:
      found.append((target, math.exp(statistics.fmean(map(math.log, ratios)))))
  return found


def predicted(measured: cells.Measured) -> float:
  """Returns auto's predicted time by the measured."""
  assert measured.auto.predicted is not None
  return measured.auto.predicted / statistics.median(measured.auto.seconds)


def _verdict(target: Target, measured: cells.Measured) -> Verdict | None:
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
  ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
  between = tuning.median_interval(ratios) or (min(ratios), max(ratios))
  return Verdict(target, measured.cell, rival, statistics.median(ratios),
                 between, measured.auto.wrong)
