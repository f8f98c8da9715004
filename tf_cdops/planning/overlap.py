"""Where packs are cut, so that the first leave while the rest is computed.

A model of the backward pass: gradients appear one by one, the last tensor's
first, evenly over it. Links carry one pack after another, and a pack can leave
when all of its gradients are there. So the first should be ready early, and the
last, behind which nothing is left to be computed, should be small; but each
pack costs its messages. PyTorch's DistributedDataParallel has such packs of 25
MB each (Li et al., VLDB 2020); here links and backward pass decide.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence

# Cuts are looked for between so many runs of tensors, at most.
_RUNS = 48


def arrivals(count: int, seconds: float) -> list[float]:
  """Returns when each of so many gradients is there."""
  return [seconds * (count - i) / count for i in range(count)]


def finish(loads: Iterable[tuple[float, float]]) -> float:
  """Returns when links have carried all loads, one after another.

  Args:
    loads: of each, when it can leave, and how long it takes.
  """
  end = 0.0
  for leaves, seconds in sorted(loads):
    end = max(end, leaves) + seconds
  return end


def cuts(seconds: Sequence[float], arrived: Sequence[float],
         fixed: float, most: int = _RUNS,
         longest: float = math.inf) -> tuple[int, ...]:
  """Returns the cuts with which the links have carried everything soonest.

  Args:
    seconds: how long links are busy with each tensor.
    arrived: when each is there; the last tensor is first.
    fixed: what each pack takes beside.
    most: how many packs there may be.
    longest: how long links may be busy with a pack; one run of tensors, which
      isn't cut, may take longer.

  Returns:
    Positions, rising: packs reach from one to the next.
  """
  if not any(seconds):
    return ()
  starts = [0, *even_cuts(seconds, min(most, _RUNS))]
  before = [0.0, *itertools.accumulate(seconds)]
  # How soon all from a position on can have been carried, and where the pack
  # that begins there ends.
  soonest = {len(seconds): (0.0, len(seconds))}
  following = len(seconds)
  for start in reversed(starts):
    soonest[start] = min(
        (max(carried, arrived[start]) + fixed + before[end] - before[start],
         end) for end, (carried, _) in soonest.items()
        if end == following or before[end] - before[start] <= longest)
    following = start
  found, at = [], 0
  while (at := soonest[at][1]) < len(seconds):
    found.append(at)
  return tuple(found)


def even_cuts(weights: Sequence[float], count: int) -> tuple[int, ...]:
  """Returns the cuts into at most so many runs of about one weight."""
  if count < 2:
    return ()
  sums = list(itertools.accumulate(weights))
  ends = {_nearest(sums, sums[-1] * part / count) for part in range(1, count)}
  return tuple(sorted(end for end in ends if 0 < end < len(weights)))


def _nearest(sums: Sequence[float], wanted: float) -> int:
  """Returns after how many the sum is nearest to what is wanted."""
  after = bisect.bisect_left(sums, wanted)
  here, less = sums[after], sums[after - 1] if after else 0.0
  return after + (here - wanted < wanted - less)
