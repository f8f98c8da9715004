"""Whether targets are met, cell by cell: what suites share of it.

A target has a `text`, a `limit` for the ratio of our time to another's, and may
have one for the geometric `mean` of all cells. A cell misses it if the 95%
interval of its ratios, round by round, lies wholly above the limit.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tf_cdops.cli.measuring import tuning


@dataclasses.dataclass(frozen=True)
class Verdict:
  """A target held against one cell.

  Attributes:
    target: what was wanted.
    cell: where.
    rival: whom ours was held against.
    ratio: the median of the rounds' ratios.
    between: where it is, with a confidence of 95%.
    wrong: elements of ours that weren't the sum.
  """

  target: Any
  cell: Any
  rival: str
  ratio: float
  between: tuple[float, float]
  wrong: int

  @property
  def met(self) -> bool:
    return self.between[0] <= self.target.limit and not self.wrong


def verdict(target: Any, cell: Any, rival: str, ours: Iterable[float],
            theirs: Iterable[float], wrong: int) -> Verdict:
  """Returns it for times of the same rounds."""
  ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
  return Verdict(target, cell, rival, statistics.median(ratios),
                 interval(ratios), wrong)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
  """Returns where their median is; of few, between which of them all are."""
  return tuning.median_interval(ratios) or (min(ratios), max(ratios))


def means(verdicts: Sequence[Verdict]) -> list[tuple[Any, float]]:
  """Returns the geometric means of targets that have a limit for them."""
  found = []
  for target in _targets(verdicts):
    if target.mean is not None:
      ratios = [v.ratio for v in verdicts if v.target is target]
      found.append((target, math.exp(statistics.fmean(map(math.log, ratios)))))
  return found


def rows(verdicts: Sequence[Verdict]) -> list[tuple[Any, ...]]:
  """Returns a table's: target, limit, how often it is met, worst, and where."""
  found: list[tuple[Any, ...]] = []
  for target in _targets(verdicts):
    some = [v for v in verdicts if v.target is target]
    worst = max(some, key=lambda v: v.ratio)
    found.append((target.text, f"≤ {target.limit:g}",
                  f"{sum(v.met for v in some)} of {len(some)}",
                  f"{worst.ratio:.2f}", worst.cell))
  for target, mean in means(verdicts):
    found.append((f"{target.text}, geometric mean", f"≤ {target.mean:g}",
                  "met" if mean <= target.mean else "**NOT**", f"{mean:.2f}",
                  ""))
  return found


def _targets(verdicts: Iterable[Verdict]) -> list[Any]:
  """Returns those that were held against any cell, in their order."""
  return list(dict.fromkeys(v.target for v in verdicts))
