"""How programs, one a worker, come together: within a limit, and agreeing."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_cdops.base import errors
from tf_cdops.cluster import addresses
from tf_cdops.cluster import waiting

# Seconds: within which all programs must have begun, after which and how often
# it is said who hasn't, and for how long a worker may be silent.
JOIN_SECONDS, _PATIENCE, _AGAIN = 600, 15.0, 30.0
HEARTBEAT_SECONDS = 20


@contextlib.contextmanager
def telling_who_is_missing(cluster: addresses.Cluster) -> Iterator[None]:
  """Says, from time to time, which programs haven't begun."""
  if not cluster.others:
    yield
    return
  root = str(pathlib.Path(__file__).resolve().parents[2])
  path = os.pathsep.join([root, *filter(None, sys.path)])
  with subprocess.Popen(
      [sys.executable, "-m", waiting.__name__, json.dumps({
          "tasks": [dataclasses.astuple(task) for task in cluster.others],
          "parent": os.getpid(), "limit": JOIN_SECONDS, "patience": _PATIENCE,
          "again": _AGAIN})],
      stdin=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}) as helper:
    try:
      yield
    finally:
      helper.kill()


def check_agreement(told: Sequence[Mapping[str, Any]],
                    tasks: Sequence[addresses.Task]) -> None:
  """Raises unless all programs told the same."""
  first = told[0]
  for task, other in zip(tasks[1:], told[1:], strict=True):
    for name, value in first.items():
      if other[name] != value:
        raise errors.ClusterError(
            f"`{name}` must be the same in all programs: {tasks[0]} has "
            f"{value!r}, and {task} has {other[name]!r}.")
