"""What clusters are described by, made uniform: tasks and their addresses."""

import collections
import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from tf_cdops.base import errors

# Jobs whose tasks hold replicas; a cluster's others (ps, evaluator) don't.
WORKER_JOBS = ("chief", "worker")
_FORM = ('a dict such as {"worker": ["host1:2222", "host2:2222"]}, a '
         "tf.train.ClusterSpec, a tf_cdops.LocalCluster or a "
         "tf.distribute.cluster_resolver.ClusterResolver")


@dataclasses.dataclass(frozen=True)
class Task:
  """One process of a cluster."""

  job: str
  index: int
  address: str

  @property
  def name(self) -> str:
    """What TensorFlow calls it, such as "/job:worker/replica:0/task:1"."""
    return f"/job:{self.job}/replica:0/task:{self.index}"

  def __str__(self) -> str:
    return f"/job:{self.job}/task:{self.index} at {self.address}"


@dataclasses.dataclass(frozen=True)
class Cluster:
  """The tasks of a cluster, and which of them this process is, if any."""

  tasks: tuple[Task, ...]
  own: Task | None = None

  @property
  def workers(self) -> tuple[Task, ...]:
    """The tasks that hold replicas, the chief first."""
    return tuple(task for job in WORKER_JOBS for task in self.tasks
                 if task.job == job)

  @property
  def others(self) -> tuple[Task, ...]:
    """The tasks that aren't this process."""
    return tuple(task for task in self.tasks if task != self.own)

  def as_dict(self) -> dict[str, Any]:
    """Returns the addresses by job, as TensorFlow takes them."""
    jobs: dict[str, dict[int, str]] = collections.defaultdict(dict)
    for task in self.tasks:
      jobs[task.job][task.index] = task.address
    return {job: (list(by_index.values())
                  if list(by_index) == list(range(len(by_index)))
                  else by_index) for job, by_index in jobs.items()}


def resolve(cluster: Any) -> Cluster:
  """Returns a cluster from any of the ways to describe one."""
  own = (getattr(cluster, "task_type", None), getattr(cluster, "task_id", None))
  described = cluster
  if callable(getattr(described, "cluster_spec", None)):
    described = described.cluster_spec()
  if callable(getattr(described, "as_dict", None)):
    described = described.as_dict()
  if not isinstance(described, Mapping) or not described:
    raise errors.InputError(f"`cluster` ({cluster!r}) must be {_FORM}.")
  tasks = []
  for job, addresses in described.items():
    # A sparse job is a mapping from a task's number to its address.
    if isinstance(addresses, Mapping) and addresses and all(
        isinstance(index, int) for index in addresses):
      numbered = sorted(addresses.items())
    elif isinstance(addresses, (list, tuple)) and addresses:
      numbered = list(enumerate(addresses))
    else:
      raise errors.InputError(
          f"`cluster` has {addresses!r} for the job {job!r}, which must be a "
          "list of addresses.")
    for index, address in numbered:
      split_address(address)
      tasks.append(Task(str(job), int(index), address))
  by_address: dict[str, Task] = {}
  for task in tasks:
    other = by_address.setdefault(task.address, task)
    if other is not task:
      raise errors.InputError(
          f"`cluster` has the address {task.address} twice, for {other.name} "
          f"and {task.name}; each task must have its own.")
  resolved = Cluster(tuple(tasks))
  if not resolved.workers:
    raise errors.InputError(
        f"`cluster` (jobs {sorted(described)}) must have a job 'worker'.")
  mine = [task for task in tasks if (task.job, task.index) == own]
  return dataclasses.replace(resolved, own=mine[0] if mine else None)


def split_address(address: Any) -> tuple[str, int]:
  """Returns host and port of "host:port" or "[v6]:port"."""
  host, _, port = str(address).rpartition(":")
  if not host or not port.isdecimal() or not 0 < int(port) < 65536:
    raise errors.InputError(
        f"`address` ({address!r}) must be host:port, such as 10.0.0.5:2222, "
        "with a port from 1 to 65535.")
  return host.strip("[]"), int(port)


def parse_text(text: str, argument: str = "cluster") -> dict[str, list[str]]:
  """Returns a cluster from JSON, or from "host:port,host:port"."""
  if text.lstrip().startswith("{") or argument == "TF_CONFIG":
    try:
      parsed = json.loads(text)
    except ValueError as error:
      raise errors.InputError(
          f"`{argument}` ({text!r}) isn't right JSON: {error}.") from None
    if not isinstance(parsed, dict):
      raise errors.InputError(
          f"`{argument}` ({text!r}) must be a JSON object.")
    return parsed.get("cluster", {} if argument == "TF_CONFIG" else parsed)
  return {"worker": [address.strip() for address in text.split(",")]}


def from_tf_config(environment: Mapping[str, str] = os.environ
                   ) -> Cluster | None:
  """Returns the cluster that TF_CONFIG describes; None if it has none."""
  text = environment.get("TF_CONFIG", "")
  cluster = parse_text(text, "TF_CONFIG") if text else {}
  if cluster == {}:
    return None
  task = json.loads(text).get("task", {})
  if not isinstance(task, dict) or not str(task.get("index", 0)).isdecimal():
    raise errors.InputError(
        f"`TF_CONFIG` has the task {task!r}, which must be such as "
        '{"type": "worker", "index": 0}.')
  return described(cluster, task.get("type"), task.get("index"))


def described(cluster: Any, job: str | None, index: Any) -> Cluster:
  """Returns a cluster of which this process is a task."""
  return resolve(_Described(cluster, job, index))


class _Described:
  """A cluster and the own task, as a ClusterResolver gives them."""

  def __init__(self, cluster: Any, task_type: str | None, index: Any):
    self._cluster = cluster
    self.task_type = task_type
    self.task_id = None if index is None else int(index)

  def cluster_spec(self) -> Any:
    return self._cluster

  def __repr__(self) -> str:
    return repr(self._cluster)
