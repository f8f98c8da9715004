"""Groups of processes that make steps together, each group a contender's.

Contenders of several workers can't share a process. So one program drives all
groups: it asks one for a step, waits, and goes on to the next.
"""

import contextlib
import dataclasses
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import cells
from benchmarks import children
from benchmarks import workloads

from tf_cdops.cli.measuring import timing

_BUILD_LIMIT, _STEP_LIMIT = 400.0, 240.0


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a process is: by default, on this machine's loopback.

  Attributes:
    host: its address.
    interface: its network's name.
    run: does something there, such as start a process.
  """

  host: str = "127.0.0.1"
  interface: str = "lo"
  run: Callable[[Callable[[], Any]], Any] = lambda start: start()


class Group:
  """Processes that make steps together."""

  def __init__(self, family: str, peers: Sequence[children.Child],
               joins: Sequence[Mapping[str, Any]]):
    """Lets them find each other.

    Args:
      family: one of `cells`.
      peers: the processes.
      joins: what each of them is told for it.
    """
    self.family, self._peers = family, tuple(peers)
    children.ask_all(peers, [{"do": "join"} | dict(join) for join in joins],
                     _BUILD_LIMIT)

  @property
  def pids(self) -> list[int]:
    return [peer.pid for peer in self._peers]

  def ask(self, do: str, **request: Any) -> list[dict[str, Any]]:
    """Asks all of them the same."""
    return children.ask_all(self._peers,
                            [{"do": do} | request] * len(self._peers),
                            _BUILD_LIMIT)

  def build(self, load: str, **more: Any) -> list[dict[str, Any]]:
    """Builds what all-reduces a load; returns what there is to run."""
    # Gloo's processes know no loads.
    shapes = [size.shape for size in workloads.named(load).sizes]
    return self.joined(self.ask("build", load=load, shapes=shapes, **more))

  def joined(self, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what all processes have built, of their answers."""
    # Each process counts what is wrong with its own results.
    return [{"family": self.family} | same[0]
            | {"wrong": sum(one["wrong"] for one in same)}
            for same in zip(*(a["contenders"] for a in answers), strict=True)]

  def step(self, contender: str) -> float:
    """Makes one step; returns the seconds of the slowest process."""
    request = {"do": "step", "contender": contender}
    answers = children.ask_all(self._peers, [request] * len(self._peers),
                               _STEP_LIMIT)
    return max(answer["seconds"] for answer in answers)


def ours(stack: contextlib.ExitStack, **join: Any) -> Group:
  """Starts a client with workers of its own."""
  client = stack.enter_context(children.Child("benchmarks.cluster_client"))
  return Group(cells.OURS, [client], [join])


def multi_worker(stack: contextlib.ExitStack, places: Sequence[Place],
                 spmd: bool = False) -> Group:
  """Starts MultiWorkerMirroredStrategy's workers, or SpmdStrategy's."""
  addresses = [f"{place.host}:{port}" for place, port in zip(
      places, _free_ports(len(places)), strict=True)]
  peers = [_start(stack, place, "benchmarks.multi_worker_peer", env={
      "TF_CONFIG": json.dumps({
          "cluster": {"worker": addresses},
          "task": {"type": "worker", "index": rank}})})
           for rank, place in enumerate(places)]
  return Group(cells.OURS if spmd else cells.MULTI_WORKER, peers, [
      {"workers": len(places), "rank": rank, "spmd": spmd}
      for rank in range(len(places))])


def gloo(stack: contextlib.ExitStack, places: Sequence[Place],
         python: str) -> Group:
  """Starts ranks of PyTorch's Gloo."""
  port, = _free_ports(1)
  peers = [_start(stack, place, "benchmarks.gloo_peer", python=python,
                  env={"GLOO_SOCKET_IFNAME": place.interface})
           for place in places]
  return Group(cells.GLOO, peers, [
      {"address": f"{places[0].host}:{port}", "workers": len(places),
       "rank": rank} for rank in range(len(places))])


def interleaved(turns: Mapping[str, Callable[[], float]]
                ) -> Iterator[dict[str, float]]:
  """Yields, without end, the seconds of one step of each contender."""
  for names in timing.orders(turns):
    yield {name: turns[name]() for name in names}


def _start(stack: contextlib.ExitStack, place: Place, module: str,
           **how: Any) -> children.Child:
  return stack.enter_context(
      place.run(lambda: children.Child(module, **how)))


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
