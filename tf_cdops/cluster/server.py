"""Runs one task of a cluster in this process: TensorFlow's gRPC server."""

import ctypes
import json
import os
import signal
import sys
import threading
import time

import tensorflow as tf

from tf_cdops.cluster import addresses

_PR_SET_PDEATHSIG = 1
_SIGNAL_SECONDS = 0.25


def serve(cluster: addresses.Cluster, num_cpus: int | None = None,
          until_stdin_closes: bool = False, as_json: bool = False) -> None:
  """Serves as the cluster's own task until the process is told to end.

  Args:
    cluster: the addresses, and which of them is this task's.
    num_cpus: logical CPU devices to offer; None for TensorFlow's default.
    until_stdin_closes: end when standard input does: with the process that
      holds its other end, however that ends.
    as_json: say what is served as one line of JSON.
  """
  task = cluster.own
  assert task is not None
  for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: _end("stopped"))
  config = tf.compat.v1.ConfigProto()
  if num_cpus is not None:
    config.device_count["CPU"] = num_cpus
  server = tf.distribute.Server(
      cluster.as_dict(), job_name=task.job, task_index=task.index,
      protocol="grpc", config=config)
  said = (json.dumps({"job": task.job, "task": task.index,
                      "address": task.address, "target": server.target})
          if as_json else f"Serving {task} ({server.target}).")
  print(said, flush=True)
  if until_stdin_closes:
    _wake_with_parents_end()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
  # Joining the server would keep Python from handling signals, and so would
  # signal.pause: the system may give a signal to any of TensorFlow's threads.
  while True:
    time.sleep(_SIGNAL_SECONDS)


def _wake_with_parents_end() -> None:
  """Has Linux wake this process when its parent ends, if it is stopped.

  Awake, it sees that its standard input has closed. The signal comes also when
  only the thread that started this process ends; waking does no harm then.
  """
  if sys.platform == "linux":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _end_with_stdin() -> None:
  sys.stdin.read()
  _end()


def _end(message: str = "") -> None:
  """Ends the process; a TensorFlow server has no other way to stop."""
  if message:
    print(f"tf_cdops worker: {message}", flush=True)
  os._exit(0)
