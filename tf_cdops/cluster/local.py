"""LocalCluster: real TensorFlow servers, as processes of this machine."""

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any

from absl import logging

from tf_cdops import cost
from tf_cdops.base import errors
from tf_cdops.base import rates
from tf_cdops.cluster import addresses
from tf_cdops.cluster import cables
from tf_cdops.cluster import interfaces
from tf_cdops.cluster import isolation
from tf_cdops.cluster import ports
from tf_cdops.cluster import probing

_MAX_WORKERS = 64
# Of a message between hosts with cables, in seconds: what was seen where all of
# them share two cores.
_LATENCY, _MESSAGE = 1e-4, 1e-4
# Of a frame's 1,514 bytes, by which a cable's rate is counted, 1,448 are TCP's
# payload.
_PAYLOAD = 1448 / 1514
_ATTEMPTS = 3  # A free port can be taken before its server binds it.
# What a worker says then; TensorFlow's own log, with the reason, is off.
_TAKEN = ("Could not start gRPC server", "Address already in use")
_STOP_SECONDS = 5.0
_SOURCE = str(pathlib.Path(__file__).resolve().parents[2])


class LocalCluster:
  """A cluster on this machine, for trying several workers without several.

  A context manager. The workers are processes of their own that end with the
  block, with this process, or with `stop`, whichever comes first.

  With a `bandwidth`, each worker is a host of its own: it has its own network
  namespace and a cable of that rate to a switch. This process is on the switch.
  It must have been in a private network from its start, where
  `python -m tf_cdops launch --client program.py` runs a program.

  >>> with tf_cdops.LocalCluster(num_workers=2) as cluster:
  ...   len(cluster.as_dict()["worker"])
  2
  """

  def __init__(self, num_workers: int = 2, devices_per_worker: int = 1, *,
               bandwidth: str | None = None, timeout: float = 60.0):
    """Initializes; the workers start with `start` or `with`.

    Args:
      num_workers: how many processes.
      devices_per_worker: logical CPU devices of each.
      bandwidth: what each may send, and receive, such as "500mbit"; None for
        the machine's loopback, which has no limit.
      timeout: seconds within which all of them must answer.
    """
    self.num_workers = errors.check_whole_number(
        "num_workers", num_workers, 1, _MAX_WORKERS)
    self.devices_per_worker = errors.check_whole_number(
        "devices_per_worker", devices_per_worker, 1, _MAX_WORKERS)
    self._rate = (None if bandwidth is None
                  else rates.parse(bandwidth, "bandwidth"))
    self.bandwidth = bandwidth
    self._timeout = timeout
    self._cables: cables.Cables | None = None
    self._processes: dict[int, subprocess.Popen[bytes]] = {}
    self._cluster: addresses.Cluster | None = None
    # What each says, in files without a name: none is left behind, even if
    # this process is killed.
    self._logs: dict[int, IO[bytes]] = {}

  def __enter__(self) -> "LocalCluster":
    return self.start()

  def __exit__(self, *_: Any) -> None:
    self.stop()

  def __repr__(self) -> str:
    shaped = f", bandwidth={self.bandwidth!r}" if self.bandwidth else ""
    return (f"LocalCluster({self.num_workers}, {self.devices_per_worker}"
            f"{shaped})")

  @property
  def link(self) -> cost.Link | None:
    """The link between its workers, for "auto"; None without a bandwidth."""
    if self._rate is None:
      return None
    return cost.Link(str(self.bandwidth), _LATENCY, self._rate * _PAYLOAD,
                     _MESSAGE)

  def as_dict(self) -> dict[str, list[str]]:
    """Returns the addresses by job, as tf.train.ClusterSpec does."""
    return self._running().as_dict()

  def target(self, task: int = 0) -> str:
    """Returns what a tf.compat.v1.Session takes to run on a worker."""
    return f"grpc://{self._task(task).address}"

  def start(self) -> "LocalCluster":
    """Starts the workers and waits until all answer."""
    if self._cluster is not None:
      raise errors.ClusterError("this LocalCluster runs already.")
    if self._rate is None and not isolation.in_private_network() and (
        interfaces.reachable_from_outside()):
      logging.log_first_n(logging.WARNING, "LocalCluster: %s", 1,
                          interfaces.WARNING)
    try:
      self._start()
    except BaseException:  # Ctrl-C included: leave nothing behind.
      self.stop()
      raise
    return self

  def _start(self) -> None:
    hosts: Sequence[str] = ["127.0.0.1"] * self.num_workers
    if self._rate is not None:
      self._cables = cables.Cables(self.num_workers, self._rate)
      hosts = self._cables.hosts
    for attempt in range(1, _ATTEMPTS + 1):
      free = ports.find_free(self.num_workers)
      self._cluster = addresses.resolve({"worker": [
          f"{host}:{port}" for host, port in zip(hosts, free, strict=True)]})
      try:
        for task in range(self.num_workers):
          self._spawn(task)
        self._wait(self._cluster.tasks)
        return
      except errors.ClusterError as error:
        if attempt == _ATTEMPTS or not any(
            sign in str(error) for sign in _TAKEN):
          raise
        self._stop_processes()

  def set_bandwidth(self, bandwidth: str) -> None:
    """Changes the rate of the workers' cables; the workers run on.

    A strategy that was made before keeps to the link as it was: make another
    one for "auto" to go by the new rate.

    Args:
      bandwidth: what each may send, and receive, such as "1gbit".

    Raises:
      InputError: for what isn't a rate, and without cables.
    """
    rate = rates.parse(bandwidth, "bandwidth")
    if self._rate is None:
      raise errors.InputError(
          f"`bandwidth` ({bandwidth!r}) must be for cables, and this "
          "LocalCluster has none; make it with a bandwidth: "
          f"LocalCluster(bandwidth={bandwidth!r}).")
    if self._cables is not None:
      self._cables.set_rate(rate)
    self._rate, self.bandwidth = rate, bandwidth

  def restart(self, task: int) -> None:
    """Starts a worker again on its old address, after it ended."""
    restarted = self._task(task)
    self._end(self._processes[task])
    self._spawn(task)
    self._wait([restarted])

  def pid(self, task: int) -> int:
    """Returns a worker's process number."""
    return self._processes[self._task(task).index].pid

  def stop(self) -> None:
    """Ends the workers. Doing so twice is no mistake."""
    if self._cluster is not None and "tensorflow" in sys.modules:
      from tf_cdops.cluster import connecting  # Loads TensorFlow.
      connecting.disconnect(self._cluster)
    self._stop_processes()
    self._cluster = None
    if self._cables is not None:
      self._cables.remove()
      self._cables = None

  def _running(self) -> addresses.Cluster:
    if self._cluster is None:
      raise errors.ClusterError(
          "this LocalCluster doesn't run; use it in a `with` block.")
    return self._cluster

  def _task(self, task: int) -> addresses.Task:
    tasks = self._running().tasks
    if task not in range(len(tasks)):
      raise errors.InputError(
          f"`task` ({task!r}) must be from 0 to {len(tasks) - 1}.")
    return tasks[task]

  def _spawn(self, task: int) -> None:
    if self._cables is not None:
      self._cables.run_on_host(task, lambda: self._spawn_here(task))
    else:
      self._spawn_here(task)

  def _spawn_here(self, task: int) -> None:
    """Starts a worker in the network that this thread is in."""
    assert self._cluster is not None
    jobs = self._cluster.as_dict()["worker"]
    self._close_log(task)
    self._logs[task] = tempfile.TemporaryFile()  # noqa: SIM115
    self._processes[task] = subprocess.Popen(
        [sys.executable, "-m", "tf_cdops", "worker",
         f"--cluster={','.join(jobs)}", f"--task={task}",
         f"--cpu_devices={self.devices_per_worker}",
         "--until_stdin_closes"],
        stdin=subprocess.PIPE, stdout=self._logs[task],
        stderr=subprocess.STDOUT,
        env=os.environ | {
            "CUDA_VISIBLE_DEVICES": "-1",  # Its devices are CPUs.
            "PYTHONPATH": os.pathsep.join([_SOURCE, *filter(None, sys.path)])
        },
        start_new_session=True)

  def _wait(self, tasks: Any) -> None:
    def raise_if_any_ended() -> None:
      for task in tasks:
        code = self._processes[task.index].poll()
        if code is not None:
          raise errors.ClusterError(
              f"worker {task.index} ended with code {code} instead of "
              f"answering; it said:\n{self._said(task.index)}")

    try:
      probing.wait(tasks, self._timeout, raise_if_any_ended)
    except errors.ClusterError as error:
      if "it said:" in str(error):
        raise
      said = "\n".join(f"worker {task.index} said: {self._said(task.index)}"
                       for task in tasks)
      raise errors.ClusterError(f"{error}\n{said}") from None

  def _said(self, task: int) -> str:
    log = self._logs[task].fileno()
    # The worker writes at the position that both share: reading leaves it.
    said = os.pread(log, 2000, max(0, os.fstat(log).st_size - 2000))
    return said.decode(errors="replace").strip()

  def _close_log(self, task: int) -> None:
    if task in self._logs:
      self._logs.pop(task).close()

  def _stop_processes(self) -> None:
    for process in self._processes.values():
      process.kill()  # Works for a stopped one too; servers keep nothing.
    for process in self._processes.values():
      self._end(process)
    self._processes.clear()
    for task in list(self._logs):
      self._close_log(task)

  def _end(self, process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    if process.stdin:
      process.stdin.close()
    process.wait(timeout=_STOP_SECONDS)
