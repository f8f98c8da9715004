"""Hosts with programs of SpmdStrategy and of TensorFlow's own, side by side.

They take turns, so that only one's are at work.
"""

import contextlib
import datetime
import functools
import itertools
from collections.abc import Callable
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import groups as groups_lib
from benchmarks import processors
from benchmarks.spmd import cells

from tf_cdops.base import rates
from tf_cdops.cluster import cables as cables_lib

_INTERFACE = "eth0"
# Rounds where a step takes longer than so many seconds, a tenth, and else.
_ROUNDS = (1.0, 7), (0.1, 20), (0.0, 100)


class Testbed(contextlib.ExitStack):
  """A context manager: the hosts, with all processes, for many cells."""

  def __init__(self, hosts: int, shaped: bool, computing: bool = False):
    """Initializes.

    Args:
      hosts: how many.
      shaped: whether they have cables, or the loopback.
      computing: whether each has its own share of the processors.
    """
    super().__init__()
    self._hosts, self._shaped, self._computing = hosts, shaped, computing
    self._cables: cables_lib.Cables | None = None

  def __enter__(self) -> "Testbed":
    try:
      shares = (self.enter_context(processors.Shares(self._hosts))
                if self._computing else None)
      places = self._places()
      self._groups = [groups_lib.multi_worker(self, places, spmd)
                      for spmd in (False, True)]
      if shares is not None:
        for group in self._groups:
          for host, process in enumerate(group.pids):
            shares.give(host, process)
    except BaseException:
      self.close()
      raise
    return self

  def _places(self) -> list[groups_lib.Place]:
    if not self._shaped:
      return [groups_lib.Place()] * self._hosts
    self._cables = laid = cables_lib.Cables(
        self._hosts, rates.parse(all_cells.NO_LIMIT, ""))
    self.callback(laid.remove)
    return [groups_lib.Place(host, _INTERFACE,
                             functools.partial(laid.run_on_host, i))
            for i, host in enumerate(laid.hosts)]

  def measure(self, cell: cells.Cell,
              advance: Callable[..., object] = lambda *_, **__: None
              ) -> cells.Measured:
    """Measures one cell; calls `advance` with words on what is being done."""
    advance(description=f"{cell}: building")
    self._set_rate(all_cells.NO_LIMIT)
    built = [(group, _build(group, cell)) for group in self._groups]
    self._set_rate(cell.rate)
    turns = {one["contender"]: functools.partial(group.step, one["contender"])
             for group, contenders in built for one in contenders}
    slowest = max(next(groups_lib.interleaved(turns)).values())
    count = next(count for least, count in _ROUNDS if slowest > least)
    timed = []
    for one in itertools.islice(groups_lib.interleaved(turns), count):
      timed.append(one)
      advance(description=f"{cell}: round {len(timed)} of {count}")
    return cells.Measured(
        cell, datetime.datetime.now(datetime.timezone.utc).strftime(
            "%Y-%m-%d %H:%M UTC"), tuple(
                cells.Contender(seconds=tuple(
                    row[one["contender"]] for row in timed), **one)
                for _, some in built for one in some))

  def _set_rate(self, rate: str) -> None:
    if self._cables is not None:
      self._cables.set_rate(rates.parse(rate, "rate"))


def _build(group: groups_lib.Group, cell: cells.Cell) -> list[dict[str, Any]]:
  if cell.batch is None:
    return group.build(cell.load)
  return group.joined(group.ask("build_training", batch=cell.batch))
