"""Sets of moments: sorted intervals that don't touch each other."""

from collections.abc import Iterable

Interval = tuple[float, float]
Intervals = list[Interval]


def union(given: Iterable[Interval]) -> Intervals:
  """Returns the moments that are in any of the intervals."""
  found: Intervals = []
  for start, end in sorted(one for one in given if one[1] > one[0]):
    if found and start <= found[-1][1]:
      found[-1] = found[-1][0], max(found[-1][1], end)
    else:
      found.append((start, end))
  return found


def minus(these: Intervals, those: Intervals) -> Intervals:
  """Returns the moments of one set that the other hasn't."""
  found: Intervals = []
  at = 0
  for start, end in these:
    while at < len(those) and those[at][1] <= start:
      at += 1
    k = at
    while k < len(those) and those[k][0] < end:
      if those[k][0] > start:
        found.append((start, those[k][0]))
      start = max(start, those[k][1])
      k += 1
    if start < end:
      found.append((start, end))
  return found


def within(given: Iterable[Interval], start: float, end: float) -> Intervals:
  """Returns what intervals have between two moments, joined."""
  return union((max(one[0], start), min(one[1], end)) for one in given)


def length(given: Iterable[Interval]) -> float:
  """Returns how long they are together."""
  return sum(end - start for start, end in given)
