"""Where the programs run: on loopback, on hosts with cables, or on their own.

Each place yields one assignment for each program of this machine, and other
ones for every run.
"""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_cdops.base import errors
from tf_cdops.base import rates
from tf_cdops.cli.launching import program
from tf_cdops.cluster import addresses
from tf_cdops.cluster import cables
from tf_cdops.cluster import interfaces
from tf_cdops.cluster import isolation
from tf_cdops.cluster import ports

_PORT_SECONDS = 10.0  # For the port of a program that was killed to be free.


@dataclasses.dataclass(frozen=True)
class Assignment:
  """One program's part.

  Attributes:
    name: whose it is, such as "worker 0".
    tf_config: what its TF_CONFIG is to be.
    start_there: calls what it is given where the program is to run.
  """

  name: str
  tf_config: str
  start_there: program.Starter


# Takes the number of restarts so far.
Place = Callable[[int], Sequence[Assignment]]


@contextlib.contextmanager
def this_machine(workers: int, bandwidth: str | None) -> Iterator[Place]:
  """All workers are here; with a bandwidth, each on a host of its own."""
  if bandwidth is None:
    if not isolation.in_private_network() and (
        interfaces.reachable_from_outside()):
      print(f"tf_cdops launch: warning: {interfaces.WARNING}", file=sys.stderr)
    yield lambda restarts: _assign(["127.0.0.1"] * workers)
    return
  wires = cables.Cables(workers, rates.parse(bandwidth, "--bandwidth"))
  try:
    yield lambda restarts: _assign(wires.hosts, wires.run_on_host)
  finally:
    wires.remove()


def _assign(hosts: Sequence[str],
            run_on_host: Callable[..., Any] | None = None
            ) -> list[Assignment]:
  """Gives each worker a free port; another one in each run is the safest."""
  free = ports.find_free(len(hosts))
  cluster = {"worker": [f"{host}:{port}" for host, port
                        in zip(hosts, free, strict=True)]}

  def starter(index: int) -> program.Starter:
    if run_on_host is None:
      return lambda start: start()
    return lambda start: run_on_host(index, start)

  return [Assignment(f"worker {index}", json.dumps({
      "cluster": cluster, "task": {"type": "worker", "index": index}}),
                     starter(index)) for index in range(len(hosts))]


def own_task(tf_config: str) -> Place:
  """One worker is here, whose address all know; the others are elsewhere."""
  cluster = addresses.from_tf_config({"TF_CONFIG": tf_config})
  assert cluster is not None
  assert cluster.own is not None
  own = cluster.own
  _, port = addresses.split_address(own.address)

  def assign(restarts: int) -> list[Assignment]:
    ports.wait_until_free(port, _PORT_SECONDS if restarts else 0.0)
    return [Assignment(f"{own.job} {own.index}", tf_config,
                       lambda start: start())]

  return assign


def find_tf_config(cluster: str | None, task: int | None,
                   environment: Mapping[str, str] = os.environ) -> str | None:
  """Returns TF_CONFIG for this machine's worker; None if nothing tells of it.

  Args:
    cluster: what --cluster gives, if anything.
    task: what --task gives.
    environment: where TF_CONFIG is looked for without --cluster.
  """
  if cluster is None:
    text = environment.get("TF_CONFIG", "")
    found = addresses.from_tf_config(environment)
    if found is None:
      return None
    given = f"the task of `TF_CONFIG` ({text})"
  else:
    found = addresses.described(addresses.parse_text(cluster), "worker", task)
    text = json.dumps({"cluster": found.as_dict(),
                       "task": {"type": "worker", "index": task}})
    given = f"`--task` ({task})"
  if found.own is None:
    raise errors.InputError(
        f"{given} must be one of the cluster's tasks: "
        f"{', '.join(map(str, found.tasks))}.")
  return text
