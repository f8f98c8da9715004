"""Times steps in turn, so that whatever disturbs one disturbs all."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Summary:
  """The seconds that a step took: the least, the median, the 99th percentile.

  With fewer than a hundred samples, the 99th percentile is the largest.
  """

  least: float
  median: float
  p99: float
  samples: int

  @classmethod
  def of(cls, seconds: Sequence[float]) -> "Summary":
    ranked = sorted(seconds)
    rank = max(0, math.ceil(0.99 * len(ranked)) - 1)
    return cls(ranked[0], statistics.median(ranked), ranked[rank], len(ranked))


def seconds_of(run: Callable[[], None]) -> float:
  started = time.perf_counter()
  run()
  return time.perf_counter() - started


def rounds(runs: Mapping[str, Callable[[], None]]
           ) -> Iterator[dict[str, float]]:
  """Yields, without end, the seconds of one run of each.

  Each round begins with another, lest one always run in the wake of the same.
  """
  names = list(runs)
  while True:
    yield {name: seconds_of(runs[name]) for name in names}
    names = [*names[1:], *names[:1]]
