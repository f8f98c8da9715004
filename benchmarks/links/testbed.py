"""Hosts with cables of a given rate, and all contenders' processes on them.

Each contender's processes have cables of their own. They take turns, so only
one's are in use.
"""

import contextlib
import dataclasses
import datetime
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import groups as groups_lib
from benchmarks.links import cells

from tf_cdops.base import rates
from tf_cdops.cluster import cables as cables_lib

_INTERFACE = "eth0"
# Rounds where a step of ours takes longer than so many seconds, and else. Of
# five, the true median is between the least and the most in 94 of 100 cases.
_LONG_SECONDS, _LONG_ROUNDS, _ROUNDS = 1.0, 5, 20
# A spec that takes so many times as long as "auto" need not run again.
_HOPELESS = 1.5


# Who runs by default, in this order.
FAMILIES = all_cells.OURS, all_cells.MULTI_WORKER, all_cells.GLOO


class Testbed(contextlib.ExitStack):
  """A context manager: the hosts, with all processes, for many cells."""

  def __init__(self, hosts: int, devices: int, torch_python: str | None,
               wires: Sequence[str] = (), shaped: bool = True,
               families: Sequence[str] = FAMILIES):
    """Initializes.

    Args:
      hosts: how many.
      devices: of each.
      torch_python: a Python that has PyTorch, for Gloo; None for no Gloo.
      wires: if there are any, "auto" with each is held against "auto", and
        against nothing else.
      shaped: whether they have cables, or the loopback, where only ours run.
      families: whose processes are there.
    """
    super().__init__()
    self._families = tuple(families)
    self._shaped = shaped
    self._wires = list(wires)
    self._hosts, self._devices = hosts, devices
    self._python = torch_python
    self._cables: list[cables_lib.Cables] = []
    self._links: dict[str, dict[str, Any]] = {}

  def __enter__(self) -> "Testbed":
    try:
      self._ours: groups_lib.Group | None = None
      if all_cells.OURS in self._families:
        self._ours = groups_lib.ours(
            self, workers=self._hosts, devices=self._devices,
            rate=all_cells.NO_LIMIT if self._shaped else None)
      self._others: list[tuple[groups_lib.Group, dict[str, Any]]] = []
      if all_cells.MULTI_WORKER in self._families and not self._wires:
        self._others.append(
            (groups_lib.multi_worker(self, self._places()), {}))
      if (all_cells.GLOO in self._families and self._python
          and not self._wires):
        self._others.append((groups_lib.gloo(
            self, self._places(), self._python), {"singly": False}))
    except BaseException:
      self.close()
      raise
    return self

  def _places(self) -> list[groups_lib.Place]:
    """Lays cables; returns a place for each device of each host."""
    laid = cables_lib.Cables(self._hosts, rates.parse(all_cells.NO_LIMIT, ""))
    self.callback(laid.remove)
    self._cables.append(laid)
    return [groups_lib.Place(host, _INTERFACE,
                             functools.partial(laid.run_on_host, i))
            for i, host in enumerate(laid.hosts)
            for _ in range(self._devices)]

  def measure(self, cell: cells.Cell,
              advance: Callable[..., object] = lambda *_, **__: None
              ) -> cells.Measured:
    """Measures one cell; calls `advance` with words on what is being done."""
    advance(description=f"{cell}: building")
    self._set_rate(all_cells.NO_LIMIT)
    built = []
    if self._ours is not None:
      built.append((self._ours, self._ours.build(
          cell.load, rate=cell.rate, wires=self._wires)))
    built += [(group, group.build(cell.load, **more))
              for group, more in self._others]
    self._set_rate(cell.rate)
    if self._ours is not None and cell.rate not in self._links:
      advance(description=f"{cell}: links")
      self._links[cell.rate], = self._ours.ask("measure_links")
    turns = {one["contender"]: functools.partial(group.step, one["contender"])
             for group, contenders in built for one in contenders}
    notes = []
    first = next(groups_lib.interleaved(turns))
    for name in [one["contender"] for group, some in built
                 if group is self._ours for one in some]:
      if not self._wires and first[name] > _HOPELESS * first[cells.AUTO]:
        del turns[name]
        notes.append(f"{name} took {first[name] * 1e3:.0f} ms, and ran once.")
    # Of short steps the first only warms up. To long ones, all of which have
    # run before, to be checked, that makes no difference.
    is_long = min(first.values()) > _LONG_SECONDS
    count = _LONG_ROUNDS if is_long else _ROUNDS
    timed = [first] if is_long else []
    for one in itertools.islice(groups_lib.interleaved(turns),
                                count - len(timed)):
      timed.append(one)
      advance(description=f"{cell}: round {len(timed)} of {count}")
    contenders = tuple(
        cells.Contender(seconds=tuple(row[one["contender"]] for row in timed),
                        **one)
        for _, some in built for one in some if one["contender"] in turns)
    return cells.Measured(
        cell, datetime.datetime.now(datetime.timezone.utc).strftime(
            "%Y-%m-%d %H:%M UTC"), self._links.get(cell.rate, {}), contenders,
        tuple(notes))

  def _set_rate(self, rate: str) -> None:
    if not self._shaped:
      return
    if self._ours is not None:
      self._ours.ask("set_rate", rate=rate)
    for laid in self._cables:
      laid.set_rate(rates.parse(rate, "rate"))


def measure_apart(cell: cells.Cell, torch_python: str | None,
                  advance: Callable[..., object]) -> cells.Measured:
  """Measures a cell for which memory has room for one family at a time.

  Each has its rounds in turn, in processes of their own.
  """
  parts = []
  for family in FAMILIES:
    if family == all_cells.GLOO and not torch_python:
      continue
    with Testbed(cell.hosts, cell.devices, torch_python,
                 families=(family,)) as bed:
      parts.append(bed.measure(cell, advance))
  count = min(len(one.seconds) for part in parts for one in part.contenders)
  return dataclasses.replace(
      parts[0], contenders=tuple(
          dataclasses.replace(one, seconds=one.seconds[:count])
          for part in parts for one in part.contenders),
      notes=(*parts[0].notes, "One contender's rounds after another's: memory "
             "had no room for all processes at once."))
