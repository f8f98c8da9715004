"""What all-reduces use of the links, alone and together."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_cdops import topology as topology_lib
from tf_cdops.explaining import waves as waves_lib


@dataclasses.dataclass(frozen=True, eq=False)
class Usage:
  """What one all-reduce, or several, use.

  Attributes:
    steps: transfers on the longest chain.
    hidden: further steps, of an engine that works out of sight.
    slow_steps: those of both in which something goes between workers.
    inside: bytes that change device inside workers, in all.
    across: bytes that change worker, in all.
    device_loads: bytes that each device, and then each host, sends (first
      row) and receives (second) inside its worker.
    worker_loads: bytes that each worker sends to and receives from others.
    links: how many transfers this was added up from: the work of doing so.
    basis: one of waves.BASES.
  """

  steps: int
  hidden: int
  slow_steps: int
  inside: int
  across: int
  device_loads: np.ndarray
  worker_loads: np.ndarray
  links: int = 0
  basis: str = waves_lib.BASES[0]

  @property
  def busiest(self) -> tuple[int, int]:
    """The places with the largest loads, by device and by worker."""
    return int(self.device_loads.argmax()), int(self.worker_loads.argmax())

  def beside(self, other: "Usage") -> "Usage":
    """Returns what both use when they run at the same time."""
    return self._with(other, max)

  def after(self, other: "Usage") -> "Usage":
    """Returns what both use when they run one after the other."""
    return self._with(other, sum)

  def times(self, steps: float, size: float, basis: str | None = None
            ) -> "Usage":
    """Returns it with so many times the steps and so many times the bytes."""
    return Usage(
        round(self.steps * steps), round(self.hidden * steps),
        round(self.slow_steps * steps), round(self.inside * size),
        round(self.across * size), self.device_loads * size,
        self.worker_loads * size, self.links, basis or self.basis)

  def levelled(self, level: Callable[..., np.ndarray]) -> "Usage":
    """Returns it with each kind of place loaded alike, as `level` says."""
    hosts = self.worker_loads.shape[1]
    even = lambda loads: np.broadcast_to(
        level(loads, axis=1, keepdims=True), loads.shape)
    return dataclasses.replace(
        self, worker_loads=even(self.worker_loads),
        device_loads=np.hstack([even(self.device_loads[:, :-hosts]),
                                even(self.device_loads[:, -hosts:])]))

  def _with(self, other: "Usage",
            join: Callable[[tuple[int, int]], int]) -> "Usage":
    return Usage(
        join((self.steps, other.steps)), join((self.hidden, other.hidden)),
        join((self.slow_steps, other.slow_steps)),
        self.inside + other.inside, self.across + other.across,
        self.device_loads + other.device_loads,
        self.worker_loads + other.worker_loads, self.links + other.links,
        max(self.basis, other.basis, key=waves_lib.BASES.index))


def none(topology: topology_lib.Topology) -> Usage:
  """Returns the usage of nothing."""
  w = len(topology.workers)
  return Usage(0, 0, 0, 0, 0, np.zeros((2, len(topology.devices) + w)),
               np.zeros((2, w)))


def estimate(known: Sequence[Usage], stand_ins: Sequence[Usage],
             join: Callable[[Usage, Usage], Usage]) -> Usage:
  """Returns what all-reduces use of which some stand for many.

  Roles rotate from one to the next, so those that are stood for don't load
  the stand-in's busiest place but others in turn: each place gets what most
  places get, if that isn't more than the mean, and no less than all have in
  the mean.

  Args:
    known: what each of the others uses; the largest should be among them.
    stand_ins: what each uses, as many times as it stands for others.
    join: `Usage.after` or `Usage.beside`.
  """
  whole = functools.reduce(join, [*known, *stand_ins])
  rotating = len({used.busiest for used in (*known, *stand_ins)}) > 1
  if not stand_ins or not rotating:
    return whole
  common = functools.reduce(
      join, [*known, *(used.levelled(_common) for used in stand_ins)])
  mean = whole.levelled(np.mean)
  return dataclasses.replace(
      whole, device_loads=np.maximum(common.device_loads, mean.device_loads),
      worker_loads=np.maximum(common.worker_loads, mean.worker_loads))


def _common(loads: np.ndarray, **how: Any) -> np.ndarray:
  return np.minimum(np.median(loads, **how), np.mean(loads, **how))
