"""Measures several workers: groups of processes, their steps interleaved.

The contenders can't share a process here, so this one drives all groups: it
asks one group for one step, waits, and goes on to the next.
"""

import contextlib
import dataclasses
import functools
import json
import socket
from collections.abc import Sequence
from typing import Any

from benchmarks import cells
from benchmarks import children
from benchmarks import workloads

from tf_cdops.cli.measuring import timing

_BUILD_LIMIT, _STEP_LIMIT = 400.0, 120.0
_WARM_UP = 2


@dataclasses.dataclass(frozen=True)
class Group:
  """Processes that make steps together, and what they answered at first."""

  peers: tuple[children.Child, ...]
  contenders: tuple[dict[str, Any], ...]

  def step(self, contender: str) -> float:
    """Makes one step; returns the seconds of the slowest process."""
    request = {"do": "step", "contender": contender}
    answers = children.ask_all(self.peers, [request] * len(self.peers),
                               _STEP_LIMIT)
    return max(answer["seconds"] for answer in answers)


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
  with contextlib.ExitStack() as stack:
    groups = [_ours(cell, stack)]
    others = [functools.partial(_multi_worker, cell, stack)]
    if torch_python:
      others.append(functools.partial(_gloo, cell, stack, torch_python))
    for start in others:
      try:
        groups.append(start())
      except children.ChildError as error:  # Not ours: the rest still counts.
        notes.append(f"left out of {cell}: {error}")
    results = _interleave(groups, rounds)
  return cells.Measured(cell, tuple(results), tuple(notes))


def _interleave(groups: Sequence[Group], rounds: int) -> list[cells.Result]:
  turns = {contender["contender"]: functools.partial(
      group.step, contender["contender"])
           for group in groups for contender in group.contenders}
  seconds: dict[str, list[float]] = {name: [] for name in turns}
  orders = timing.orders(turns)
  for number in range(_WARM_UP + rounds):
    for name in next(orders):
      one = turns[name]()
      if number >= _WARM_UP:
        seconds[name].append(one)
  results = []
  for group in groups:
    for contender in group.contenders:
      time = timing.Summary.from_samples(seconds[contender["contender"]])
      results.append(cells.Result(**dataclasses.asdict(time), **contender))
  return results


def _group(peers: Sequence[children.Child],
           requests: Sequence[dict[str, Any]], family: str = "") -> Group:
  answers = children.ask_all(peers, [{"do": "build"} | request
                                     for request in requests], _BUILD_LIMIT)
  # Each process counts what is wrong with its own results.
  contenders = [
      {"family": family} | same[0] | {
          "wrong": sum(one["wrong"] for one in same)}
      for same in zip(*(a["contenders"] for a in answers), strict=True)]
  return Group(tuple(peers), tuple(contenders))


def _ours(cell: cells.Cell, stack: contextlib.ExitStack) -> Group:
  client = stack.enter_context(children.Child("benchmarks.cluster_client"))
  return _group([client], [{"load": cell.load, "workers": cell.devices}])


def _multi_worker(cell: cells.Cell, stack: contextlib.ExitStack) -> Group:
  addresses = [f"127.0.0.1:{port}" for port in _free_ports(cell.devices)]
  peers = [
      stack.enter_context(children.Child(
          "benchmarks.multi_worker_peer", env={"TF_CONFIG": json.dumps({
              "cluster": {"worker": addresses},
              "task": {"type": "worker", "index": rank}})}))
      for rank in range(cell.devices)]
  return _group(peers, [{"load": cell.load, "workers": cell.devices,
                         "rank": rank} for rank in range(cell.devices)],
                cells.MULTI_WORKER)


def _gloo(cell: cells.Cell, stack: contextlib.ExitStack,
          python: str) -> Group:
  shapes = [size.shape for size in workloads.named(cell.load).sizes]
  port, = _free_ports(1)
  peers = [
      stack.enter_context(children.Child(
          "benchmarks.gloo_peer", python=python,
          env={"GLOO_SOCKET_IFNAME": "lo"}))
      for _ in range(cell.devices)]
  return _group(peers, [{"shapes": shapes, "workers": cell.devices,
                         "rank": rank, "port": port}
                        for rank in range(cell.devices)], cells.GLOO)


def _free_ports(count: int) -> list[int]:
  """Returns ports that were free a moment ago.

  As LocalCluster does; but importing that would load TensorFlow, and this
  process must have no threads when it enters a network of its own.
  """
  with contextlib.ExitStack() as stack:
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for each in sockets:
      each.bind(("127.0.0.1", 0))
    return [each.getsockname()[1] for each in sockets]
