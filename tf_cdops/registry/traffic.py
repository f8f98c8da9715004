"""The traffic of an all-reduce as a formula: quick for thousands of devices.

Devices are ranks here, and a worker's CPU that is none of them has a number
after those: see `base.Group.endpoint`.
"""

import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np

from tf_cdops.fabric import base
from tf_cdops.registry import wire as wire_lib


def _none() -> np.ndarray:
  return np.zeros(0, int)


@dataclasses.dataclass(frozen=True, eq=False)
class Phase:
  """Transfers that run side by side.

  Attributes:
    steps: how many transfers follow each other on a link, on the critical
      path.
    sources: the ranks that send.
    targets: the rank that each sends to.
    elements: the payload of each link in all these steps.
    hidden: further steps, which an engine takes out of sight.
    wire: how its messages are encoded; None for not at all.
  """

  steps: int
  sources: np.ndarray
  targets: np.ndarray
  elements: np.ndarray
  hidden: int = 0
  wire: wire_lib.Wire | None = None

  def num_bytes(self, itemsize: int, crosses: np.ndarray) -> np.ndarray:
    """Returns the bytes that each link carries.

    Args:
      itemsize: the bytes of an element.
      crosses: which links are between workers.
    """
    plain = itemsize * self.elements
    if self.wire is None:
      return plain
    # As many messages as steps, that differ by at most one element.
    short, longer = np.divmod(self.elements, self.steps)
    coded = self.wire.codec.num_bytes
    return np.where(
        self.are_coded(crosses),
        longer * coded(short + 1, itemsize)
        + (self.steps - longer) * np.where(short > 0, coded(short, itemsize),
                                           0), plain)

  def are_coded(self, crosses: np.ndarray) -> np.ndarray:
    """Returns of which links a wire encodes the messages."""
    return crosses | (self.wire is not None and self.wire.scope == "all")

  def back(self) -> "Phase":
    """Returns the same transfers in the other direction."""
    return dataclasses.replace(self, sources=self.targets,
                               targets=self.sources)

  def renamed(self, ranks: np.ndarray) -> "Phase":
    """Returns the same among other ranks, no two of which are the same."""
    return Phase(self.steps, ranks[self.sources], ranks[self.targets],
                 self.elements, self.hidden)

  def mapped(self, ranks: np.ndarray) -> "Phase":
    """Returns the same among other ranks; each row makes one of it."""
    sources, targets = ranks[..., self.sources], ranks[..., self.targets]
    # Different ranks may turn out to be the same.
    elements = self.elements * (sources != targets)
    return Phase(self.steps, sources.ravel(), targets.ravel(),
                 elements.ravel(), self.hidden)


@dataclasses.dataclass(frozen=True, eq=False)
class Traffic:
  """An all-reduce: to parts of the sum, and from those to all of it.

  Attributes:
    down: the phases of `reduce_scatter`, or of `reduce`; all of them, where
      the algorithm has no such halves.
    up: the phases of `all_gather`, or of `broadcast`.
    owners: the ranks of the parts of the sum in between.
    lengths: the elements of each part.
  """

  down: tuple[Phase, ...]
  up: tuple[Phase, ...] = ()
  owners: np.ndarray = dataclasses.field(default_factory=_none)
  lengths: np.ndarray = dataclasses.field(default_factory=_none)

  @property
  def phases(self) -> tuple[Phase, ...]:
    """All that send anything, in order."""
    return tuple(p for p in self.down + self.up if p.elements.any())


def phase(steps: int, sources: np.ndarray, targets: np.ndarray,
          elements: np.ndarray | int, hidden: int = 0) -> Phase:
  """Returns a phase; one source, target or number may stand for all.

  What a rank sends to itself is no transfer, and counts as no elements.
  """
  if sources.shape != targets.shape:  # Thrice as quick as NumPy's broadcasts.
    sources, targets = sources + 0 * targets, targets + 0 * sources
  return Phase(steps, sources, targets, elements * (sources != targets),
               hidden)


def engine_traffic(length: int, group: base.Group,
                   hidden: int | None = None) -> Traffic:
  """Models one of TensorFlow's engines: one opaque step, a ring's payload.

  Args:
    length: the number of elements.
    group: where it takes place.
    hidden: the further steps that are waited for; a ring's if None.
  """
  ring = np.array([rank for ranks in group.workers for rank in ranks])
  lengths = np.array(base.part_lengths(length, len(ring)))
  around = phase(1, ring, np.roll(ring, -1),
                 2 * length - lengths - np.roll(lengths, -1),
                 max(2 * len(ring) - 3, 0) if hidden is None else hidden)
  return Traffic((around,), (), ring, lengths)


def side_by_side(rows: Iterable[tuple[Phase, ...]]) -> tuple[Phase, ...]:
  """Joins the first phases of all rows, then the second ones, and so on."""
  joined = []
  for column in itertools.zip_longest(*rows):
    found = [p for p in column if p is not None and p.elements.any()]
    if len(found) == 1:
      joined += found
    elif found:
      joined.append(Phase(
          max(p.steps for p in found),
          np.concatenate([p.sources for p in found]),
          np.concatenate([p.targets for p in found]),
          np.concatenate([p.elements for p in found]),
          max(p.hidden for p in found)))
  return tuple(joined)
