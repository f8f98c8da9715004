"""What TF_CONFIG says, and whether it says it well: a check of the doctor's."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from tf_cdops.base import errors
from tf_cdops.cluster import addresses


@dataclasses.dataclass(frozen=True)
class TfConfig:
  """The outcome; `detail` says it in words, with the reason if it isn't ok.

  Attributes:
    is_set: whether there is such a variable, and anything in it.
    ok: whether it is well-formed, or not set.
    detail: for people.
    cluster: the addresses by job, if it is well-formed.
    task: which of them this process is, if it is one.
  """

  is_set: bool
  ok: bool
  detail: str
  cluster: dict[str, Any] | None = None
  task: str | None = None

  def to_dict(self) -> dict[str, Any]:
    return dataclasses.asdict(self)


def examine(environment: Mapping[str, str]) -> TfConfig:
  """Reads TF_CONFIG; asks none of the tasks that it names."""
  try:
    cluster = addresses.from_tf_config(environment)
    if cluster is None:
      is_set = bool(environment.get("TF_CONFIG"))
      return TfConfig(is_set, True, "set, but has no 'cluster': one machine"
                      if is_set else "not set")
    _check_task(cluster, environment["TF_CONFIG"])
  except errors.Error as error:
    return TfConfig(True, False, f"MALFORMED: {error} Mend or unset it: "
                    "strategies read it too")
  jobs = "; ".join(
      f"{job} at " + ", ".join(task.address for task in cluster.tasks
                               if task.job == job)
      for job in dict.fromkeys(task.job for task in cluster.tasks))
  whose = (f"this is {cluster.own}" if cluster.own
           else "this is none of its tasks, but a client")
  return TfConfig(True, True, f"well-formed: {jobs}; {whose} (not asked "
                  "whether they answer)", cluster.as_dict(),
                  None if cluster.own is None else cluster.own.name)


def _check_task(cluster: Any, text: str) -> None:
  """Raises for a task with a number that its job doesn't have."""
  task = json.loads(text).get("task", {})
  jobs = [known.job for known in cluster.tasks]
  if cluster.own is None and task.get("type") in jobs:
    raise errors.InputError(
        f"`TF_CONFIG` has the task {task!r}, which must be one of the "
        f"cluster's: {', '.join(map(str, cluster.tasks))}; mend its index.")
