"""Connects this process, the client, to the workers of a cluster."""

import contextlib
import functools
import gc
import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.cluster import addresses
from tf_cdops.cluster import probing

CLIENT_JOB = "localhost"  # TensorFlow's name for a client that is no task.
# By default TensorFlow streams ops to the workers, and waits for ever on the
# stream of one that has died. With a call for each op, it raises.
_STREAMING = "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"
_ADDRESS_SECONDS = 10.0
_DISCONNECTING_SECONDS = 5.0


def connect(cluster: addresses.Cluster, timeout: float) -> None:
  """Connects, or connects again after a worker was lost and restarted.

  Args:
    cluster: the tasks, and which of them is this process, if any.
    timeout: seconds within which the others must answer, and again within
      which TensorFlow must have connected to them.

  Raises:
    ClusterError: naming the tasks that don't answer in time.
  """
  _hide_ends_of_sequences()
  os.environ.setdefault(_STREAMING, "False")
  probing.wait(cluster.others, timeout)
  gc.collect()  # What is lost and let go of is freed now, not amid new things.
  _within(timeout, lambda: _connect(cluster),
          f"connecting to {', '.join(map(str, cluster.others))}")


def _connect(cluster: addresses.Cluster) -> None:
  own = cluster.own or addresses.Task(CLIENT_JOB, 0, client_address(cluster))
  tf.config.experimental_connect_to_cluster(
      tf.train.ClusterSpec(cluster.as_dict() | (
          {} if cluster.own else {own.job: [own.address]})),
      job_name=own.job, task_index=own.index)
  tf.config.list_logical_devices()  # Answers only when all workers do.


def disconnect(cluster: addresses.Cluster) -> None:
  """Lets go of workers that are about to end, if this process drives them.

  Else TensorFlow tells of each function, when that is let go of, that it can't
  be removed from them: dozens of errors at the end of a program that went well.
  """
  driven = set(tf_compat.worker_addresses().values())
  if driven and driven <= {task.address for task in cluster.tasks}:
    # Of workers that have died there is nothing to let go of.
    with contextlib.suppress(errors.ClusterError, tf.errors.OpError):
      _within(_DISCONNECTING_SECONDS, tf_compat.let_go_of_workers,
              "disconnecting")


# TensorFlow would give the client the address "localhost", where workers on
# other machines find only themselves, and another port at each connection,
# though it goes on serving on the first. It serves anew for another cluster.
@functools.lru_cache(maxsize=1)
def client_address(cluster: addresses.Cluster) -> str:
  """Returns where the workers reach this process, with a port that is free."""
  hosts = []
  for task in cluster.workers:
    with socket.create_connection(addresses.split_address(task.address),
                                  timeout=_ADDRESS_SECONDS) as connection:
      hosts.append(ipaddress.ip_address(connection.getsockname()[0]))
    if not hosts[-1].is_loopback:
      break
  host = hosts[-1]
  family = socket.AF_INET if host.version == 4 else socket.AF_INET6
  with socket.socket(family) as free:
    free.bind((str(host), 0))
    port = free.getsockname()[1]
  return f"{host}:{port}" if host.version == 4 else f"[{host}]:{port}"


@functools.cache  # Once a process.
def _hide_ends_of_sequences() -> None:
  """Keeps Python from reporting how TensorFlow ends a remote dataset.

  When the thread that prefetches for a remote device ends, it raises "End of
  sequence" where nobody can catch it, once a loop over a dataset.
  """
  report = sys.unraisablehook

  def hook(unraisable: Any) -> None:
    if not (isinstance(unraisable.exc_value, tf.errors.OutOfRangeError)
            and "Executor.__del__" in repr(unraisable.object)):
      report(unraisable)

  sys.unraisablehook = hook


def _within(timeout: float, action: Callable[[], None], what: str) -> None:
  """Runs an action that can't be cancelled; raises if it takes too long."""
  failure: list[BaseException] = []

  def run() -> None:
    try:
      action()
    except BaseException as error:  # Raised again below, in the caller.
      failure.append(error)

  thread = threading.Thread(target=run, daemon=True)
  thread.start()
  thread.join(timeout)
  if thread.is_alive():
    raise errors.ClusterError(f"after {timeout:g} s, {what} has not ended.")
  if failure:
    raise failure[0]
