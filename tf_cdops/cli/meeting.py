"""Whether the workers of a cluster can meet: looked at before they start.

The doctor's, for clusters of one program a worker. It needs no TensorFlow.
"""

import argparse
import dataclasses
import os
import socket
from collections.abc import Mapping
from concurrent import futures
from typing import Any

from tf_cdops.base import errors
from tf_cdops.cli import output
from tf_cdops.cli.launching import places
from tf_cdops.cluster import addresses
from tf_cdops.cluster import ports
from tf_cdops.cluster import probing

TF_CONFIG = "TF_CONFIG"  # For --task: which one that variable says.
_SECONDS = 5.0  # For a host to answer.
_FREE, _DOUBTFUL, _HOST, _RUNS = "free", "free, but", "host answers", "runs"
_FINE = (_FREE, _DOUBTFUL, _HOST, _RUNS)


@dataclasses.dataclass(frozen=True)
class Finding:
  """What was found at one task's address; `detail` says what to do."""

  task: str
  address: str
  outcome: str
  detail: str

  @property
  def ok(self) -> bool:
    """Whether nothing keeps the task from meeting the others."""
    return self.outcome in _FINE

  def to_dict(self) -> dict[str, Any]:
    return dataclasses.asdict(self)


def run(args: argparse.Namespace) -> int:
  """Looks and prints; returns 1 if the workers can't meet."""
  findings = look(_cluster(args.cluster, args.task))
  ok = all(finding.ok for finding in findings)
  if args.json:
    output.print_json({"ok": ok, "tasks": [finding.to_dict()
                                           for finding in findings]})
    return 0 if ok else 1
  output.table("the cluster, before its programs start",
               ("task", "address", "outcome", "why, and what to do"),
               [dataclasses.astuple(finding) for finding in findings])
  print("As seen from here, the programs can start." if ok else
        "Something keeps the workers from meeting: see above.")
  return 0 if ok else 1


def look(cluster: addresses.Cluster) -> list[Finding]:
  """Returns what there is at each task's address, within seconds."""
  def find(task: addresses.Task) -> Finding:
    outcome, detail = (_own if task == cluster.own else _other)(task)
    return Finding(f"{task.job} {task.index}", task.address, outcome, detail)

  with futures.ThreadPoolExecutor(len(cluster.tasks)) as pool:
    return list(pool.map(find, cluster.tasks))


def _cluster(cluster: str | None, task: str,
             environment: Mapping[str, str] = os.environ) -> addresses.Cluster:
  """Returns the cluster that the flags describe, with the own task."""
  if task != TF_CONFIG and not task.isdecimal():
    raise errors.InputError(
        f"`--task` ({task}) must be the number of this machine's task, from 0; "
        f"or give no number, for that of {TF_CONFIG}.")
  if cluster is None:
    cluster = environment.get(TF_CONFIG)
  if not cluster:
    raise errors.InputError(
        f"`--task` ({task}) must come with --cluster, whose task it is, or "
        f"with {TF_CONFIG}, which isn't set; give one.")
  if task != TF_CONFIG:
    text = places.find_tf_config(cluster, int(task))
  else:
    text = places.find_tf_config(None, None, {TF_CONFIG: cluster})
  found = addresses.from_tf_config({TF_CONFIG: text or ""})
  if found is None:
    raise errors.InputError(
        f"`{TF_CONFIG}` ({cluster!r}) must have a cluster, such as "
        '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": '
        '{"type": "worker", "index": 0}}.')
  return found


def _own(task: addresses.Task) -> tuple[str, str]:
  host, port = addresses.split_address(task.address)
  why = ports.why_not_free(port)
  if why is not None:
    return "IN USE", (f"port {port} of this machine: {why}; end what uses it, "
                      "an earlier run perhaps, or take another port, on all "
                      "machines")
  try:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
  except (OSError, UnicodeError) as error:
    return "UNKNOWN", _no_address(host, error)
  for family, kind, _, _, address in found:
    try:
      with socket.socket(family, kind) as any_socket:
        any_socket.bind((address[0], 0))
      return _FREE, "this machine's: its program can listen there"
    except OSError:  # It isn't this machine's.
      continue
  return _DOUBTFUL, (f"{host} isn't an address of this machine: is --task "
                     "right? It may be, behind address translation")


def _other(task: addresses.Task) -> tuple[str, str]:
  host, port = addresses.split_address(task.address)
  try:
    socket.create_connection((host, port), timeout=_SECONDS).close()
  except ConnectionRefusedError:
    return _HOST, "its program doesn't listen yet"
  except TimeoutError:
    return "SILENT", (f"no answer within {_SECONDS:g} s; is the host up, and "
                      f"does a firewall let port {port} through?")
  except (socket.gaierror, UnicodeError) as error:
    return "UNKNOWN", _no_address(host, error)
  except OSError as error:
    return "UNREACHABLE", (f"{error.strerror or error}; mend the address or "
                           "the route to it")
  why = probing.answers(task, _SECONDS)
  if why is None:
    return _RUNS, "its program listens already"
  return "OCCUPIED", (f"something listens, and {why}; end it, or take another "
                      "port")


def _no_address(host: str, error: Exception) -> str:
  why = getattr(error, "strerror", None) or error
  return f"no address is known for {host} ({why}); mend the name"
