"""Measures several workers on this machine's loopback."""

import contextlib
import dataclasses
import functools
import itertools

from benchmarks import cells
from benchmarks import children
from benchmarks import groups as groups_lib

from tf_cdops.cli.measuring import timing

_WARM_UP = 2


def measure(cell: cells.Cell, rounds: int,
            torch_python: str | None) -> cells.Measured:
  """Measures a cell.

  Args:
    cell: which.
    rounds: timed steps of each contender.
    torch_python: a Python that has PyTorch, for Gloo; None to leave it out.
  """
  notes = [] if torch_python else [
      "Gloo was left out: no PyTorch; --torch_python can name a Python."]
  places = [groups_lib.Place()] * cell.devices
  with contextlib.ExitStack() as stack:
    others = [functools.partial(groups_lib.multi_worker, stack, places)]
    if torch_python:
      others.append(functools.partial(groups_lib.gloo, stack, places,
                                      torch_python))
    groups = [groups_lib.ours(stack, workers=cell.devices)]
    built = [(groups[0], groups[0].build(cell.load))]
    for start in others:
      try:
        group = start()
        built.append((group, group.build(cell.load)))
      except children.ChildError as error:  # Not ours: the rest still counts.
        notes.append(f"left out of {cell}: {error}")
    turns = {one["contender"]: functools.partial(group.step, one["contender"])
             for group, contenders in built for one in contenders}
    timed = list(itertools.islice(groups_lib.interleaved(turns),
                                  _WARM_UP + rounds))[_WARM_UP:]
  results = []
  for one in itertools.chain(*(contenders for _, contenders in built)):
    time = timing.Summary.from_samples(
        [row[one["contender"]] for row in timed])
    results.append(cells.Result(**dataclasses.asdict(time), **one))
  return cells.Measured(cell, tuple(results), tuple(notes))
