"""What goes over which link, as a formula: quick for thousands of devices.

Places are known by number here: see `base.Group.endpoint`.
"""

import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np

from tf_cdops.fabric import base


@dataclasses.dataclass(frozen=True, eq=False)
class Wave:
  """Transfers side by side, in so many steps one after the other.

  Attributes:
    steps: how many.
    sources: the places that send.
    targets: the place that each sends to.
    elements: how many go over that link in all these steps.
    hidden: further steps, which an engine takes out of sight.
  """

  steps: int
  sources: np.ndarray
  targets: np.ndarray
  elements: np.ndarray
  hidden: int = 0

  def moved_to(self, places: np.ndarray) -> "Wave":
    """Returns the same between other places; each row makes one of it."""
    rows = np.atleast_2d(places)
    # Different places may turn out to be the same: `wave` looks at that.
    return wave(self.steps, rows[:, self.sources].ravel(),
                rows[:, self.targets].ravel(),
                np.tile(self.elements, len(rows)), self.hidden)


@dataclasses.dataclass(frozen=True, eq=False)
class Traffic:
  """An all-reduce: down to parts of the sum, and up to the whole everywhere.

  Attributes:
    down: the waves of `reduce_scatter`, or of `reduce`; of all, where the
      algorithm has no such phases.
    up: the waves of `all_gather`, or of `broadcast`.
    owners: the places of the parts of the sum in between.
    lengths: the elements of each part.
  """

  down: tuple[Wave, ...]
  up: tuple[Wave, ...]
  owners: np.ndarray
  lengths: np.ndarray

  @property
  def waves(self) -> tuple[Wave, ...]:
    """All that move anything, in order."""
    return tuple(w for w in self.down + self.up if w.elements.any())

  @property
  def cost(self) -> base.Cost:
    """What the trace will count."""
    waves = self.waves
    if not waves:
      return base.Cost(0, 0, 0)
    elements = np.concatenate([w.elements for w in waves])
    loads = [np.bincount(np.concatenate(ends), elements).max()
             for ends in ([w.sources for w in waves],
                          [w.targets for w in waves])]
    return base.Cost(sum(w.steps for w in waves), int(elements.sum()),
                     int(max(loads)))

  def links(self, group: base.Group) -> dict[tuple[str, str], int]:
    """Returns the elements that go from one device to another."""
    names = group.places + group.hosts
    counts: dict[tuple[str, str], int] = {}
    for w in self.waves:
      for source, target, elements in zip(
          w.sources, w.targets, w.elements, strict=True):
        if elements:
          link = names[source], names[target]
          counts[link] = counts.get(link, 0) + int(elements)
    return counts


def wave(steps: int, sources: np.ndarray, targets: np.ndarray,
         elements: np.ndarray | int, hidden: int = 0) -> Wave:
  """Returns a wave; one source, target or number may stand for all.

  What a place sends to itself is no transfer, and counts as no elements.
  """
  size = len(sources) if len(sources) != 1 else len(targets)
  if len(sources) != size:
    sources = np.full(size, sources[0])
  if len(targets) != size:
    targets = np.full(size, targets[0])
  return Wave(steps, sources, targets, elements * (sources != targets), hidden)


def side_by_side(rows: Iterable[tuple[Wave, ...]]) -> tuple[Wave, ...]:
  """Joins the first waves of all rows, then the second ones, and so on."""
  joined = []
  for column in itertools.zip_longest(*rows):
    waves = [w for w in column if w is not None and w.elements.any()]
    if waves:
      joined.append(Wave(
          max(w.steps for w in waves),
          np.concatenate([w.sources for w in waves]),
          np.concatenate([w.targets for w in waves]),
          np.concatenate([w.elements for w in waves]),
          max(w.hidden for w in waves)))
  return tuple(joined)
