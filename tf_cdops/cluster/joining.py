"""How programs, one a worker, come together: within a limit, and agreeing."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from tf_cdops.base import errors
from tf_cdops.cluster import addresses
from tf_cdops.cluster import probing

# Seconds: within which all programs must have begun, after which and how often
# it is said who hasn't, and for how long a worker may be silent.
JOIN_SECONDS, _PATIENCE, _AGAIN = 600, 15.0, 30.0
HEARTBEAT_SECONDS = 20
_PROBE_SECONDS = 3.0


@contextlib.contextmanager
def telling_who_is_missing(cluster: addresses.Cluster) -> Iterator[None]:
  """Says, from time to time, which programs haven't begun."""
  done = threading.Event()

  def tell() -> None:
    pause = _PATIENCE
    while not done.wait(pause):
      missing = probing.silent(cluster.others, _PROBE_SECONDS)
      if missing and not done.is_set():
        logging.warning(
            "SpmdStrategy waits for other programs, for %d s in all: %s.",
            JOIN_SECONDS, "; ".join(
                f"{task} {why}" for task, why in missing.items()))
      pause = _AGAIN

  thread = threading.Thread(target=tell, daemon=True,
                            name="tf_cdops joining")
  thread.start()
  try:
    yield
  finally:
    done.set()


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
