"""Times steps in turn, so that whatever disturbs one disturbs all."""

import dataclasses
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tf_cdops.cli.measuring import tuning


@dataclasses.dataclass(frozen=True)
class Summary:
  """The seconds that a step took.

  Attributes:
    least: of the quickest.
    median: of all.
    p99: the 99th percentile; with fewer than a hundred samples, the largest.
    samples: how many steps.
    low: the median of ever more steps would be above this,
    high: and below this, with a confidence of 95%; of fewer than six steps
      these are the least and the largest.
  """

  least: float
  median: float
  p99: float
  samples: int
  low: float
  high: float

  @classmethod
  def from_samples(cls, seconds: Sequence[float]) -> "Summary":
    ranked = sorted(seconds)
    rank = max(0, math.ceil(0.99 * len(ranked)) - 1)
    low, high = tuning.median_interval(ranked) or (ranked[0], ranked[-1])
    return cls(ranked[0], statistics.median(ranked), ranked[rank],
               len(ranked), low, high)


def seconds_of(run: Callable[[], None]) -> float:
  started = time.perf_counter()
  run()
  return time.perf_counter() - started


def rounds(runs: Mapping[str, Callable[[], None]]
           ) -> Iterator[dict[str, float]]:
  """Yields, without end, the seconds of one run of each."""
  for names in orders(runs):
    yield {name: seconds_of(runs[name]) for name in names}


def orders(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
  """Yields, without end, the names in another order.

  Lest one always run in the wake of the same: what that one has left in caches
  and heap would count as its successor's. They are the same orders every time.
  """
  order, shuffler = list(names), random.Random(0)
  while True:
    shuffler.shuffle(order)
    yield tuple(order)
