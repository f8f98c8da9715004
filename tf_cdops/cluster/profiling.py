"""Profiles this process and, if it is a client, the workers that it drives."""

import contextlib
import os
import pathlib
import select
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.explaining.timeline import reading as reading_lib

# The process's own plane, and the one that says when its profile began.
_HOST, _ENVIRONMENT = "/host:CPU", "Task Environment"
_ANNOUNCEMENT = b"Starting to trace"
_ANNOUNCED_SECONDS = 5.0
_OPTIONS = {"host_tracer_level": 2, "python_tracer_level": 0}


class Worker(NamedTuple):
  """A task that this process drives."""

  job: str
  number: int
  address: str

  @property
  def host(self) -> str:
    return f"{self.job} {self.number}"

  @property
  def task(self) -> str:
    return f"/job:{self.job}/replica:0/task:{self.number}"


def workers_of(devices: Sequence[str]) -> list[Worker]:
  """Returns the tasks, other than this process, that have these devices."""
  found = []
  for (job, number), address in tf_compat.worker_addresses().items():
    worker = Worker(job, number, address)
    if any(name.startswith(f"{worker.task}/") for name in devices):
      found.append(worker)
  return found


class OwnProfile:
  """A profile of this process, from its making to its `stop`."""

  def __init__(self) -> None:
    """Starts.

    Raises:
      ValueError: if another profile is being made.
    """
    self._folder = tempfile.mkdtemp(prefix="tf_cdops_timeline_")
    self.began = time.time_ns()
    try:
      tf.profiler.experimental.start(
          self._folder, tf.profiler.experimental.ProfilerOptions(**_OPTIONS))
    except tf.errors.AlreadyExistsError:
      shutil.rmtree(self._folder, ignore_errors=True)
      raise errors.InputError(
          "`Timeline` must be the only one to profile, and another profile is "
          "being made; give TensorBoard's callback profile_batch=0, or end the "
          "other one first.") from None

  def stop(self) -> bytes:
    """Ends it, and returns the profiler's file; nothing if there is none."""
    try:
      with contextlib.suppress(tf.errors.UnavailableError):  # It was ended.
        tf.profiler.experimental.stop()
      found = list(pathlib.Path(self._folder).rglob("*.xplane.pb"))
      return found[0].read_bytes() if found else b""
    finally:
      shutil.rmtree(self._folder, ignore_errors=True)


class WorkersProfile:
  """A profile of workers, which takes the seconds that it was made for."""

  def __init__(self, workers: Sequence[Worker], seconds: float):
    """Starts; returns when TensorFlow says so.

    A worker writes its file to a folder of its own machine, in the one for
    temporary files, from which it is read through TensorFlow.
    """
    self._workers = workers
    self._folder = tempfile.mkdtemp(prefix="tf_cdops_timeline_")
    self._until = time.monotonic() + seconds
    self._error: Exception | None = None
    self.began = time.time_ns()
    # One call traces all at once in TensorFlow 2.21, and in 2.16 one after
    # another.
    version = tuple(map(int, tf.__version__.split(".")[:2]))
    calls = [workers] if version >= (2, 21) else [[one] for one in workers]
    self._threads = [threading.Thread(
        target=self._trace, args=(some, seconds), daemon=True,
        name="tf_cdops timeline") for some in calls]
    for thread in self._threads:
      with _announcement_swallowed():
        thread.start()

  @property
  def runs(self) -> bool:
    return any(thread.is_alive() for thread in self._threads)

  def _trace(self, workers: Sequence[Worker], seconds: float) -> None:
    try:
      tf.profiler.experimental.client.trace(
          ",".join(f"grpc://{one.address}" for one in workers), self._folder,
          round(seconds * 1e3), num_tracing_attempts=1,
          options=tf.profiler.experimental.ProfilerOptions(**_OPTIONS))
    except Exception as error:  # Whatever a network does; told below.
      self._error = error

  def abandon(self) -> None:
    """Lets it end by itself, and keeps nothing of it."""
    shutil.rmtree(self._folder, ignore_errors=True)

  def files(self, patience: float = 10.0) -> list[bytes]:
    """Waits for its end; returns the profiler's file of each worker.

    Raises:
      ClusterError: if there are none.
    """
    for thread in self._threads:
      thread.join(max(0.0, self._until + patience - time.monotonic()))
    try:
      if self.runs or self._error is not None:
        raise errors.ClusterError(
            "the workers' profilers must answer, and don't: "
            f"{self._error or 'no answer in time'}; see that their ports can "
            "be reached.")
      return [self._file(worker) for worker in self._workers]
    finally:
      self.abandon()

  def _file(self, worker: Worker) -> bytes:
    name = worker.address.replace(":", "_")
    pattern = f"{self._folder}/plugins/profile/*/{name}.xplane.pb"
    with tf.device(f"{worker.task}/device:CPU:0"):
      found = tf.io.matching_files(pattern)
      if not found.shape[0]:
        raise errors.ClusterError(
            f"{worker.host}'s profiler must write {pattern} on its machine, "
            "and hasn't; see that it can write there.")
      data: bytes = tf.io.read_file(found[0]).numpy()
      return data


@contextlib.contextmanager
def _announcement_swallowed() -> Iterator[None]:
  """Waits for the line that TensorFlow prints when it begins to trace workers.

  It goes to standard output, of which a program may make something. What others
  print meanwhile comes a little later.
  """
  try:
    sys.stdout.flush()
    kept = os.dup(1)
  except (OSError, ValueError, AttributeError):  # There is none.
    yield
    return
  come, go = os.pipe()
  os.dup2(go, 1)
  os.close(go)
  said = b""
  try:
    yield
    deadline = time.monotonic() + _ANNOUNCED_SECONDS
    while _ANNOUNCEMENT not in said or not said.endswith(b"\n"):
      left = deadline - time.monotonic()
      if left <= 0 or not select.select([come], [], [], left)[0]:
        break
      said += os.read(come, 4096)
  finally:
    os.dup2(kept, 1)
    os.close(kept)
    os.close(come)
  others = b"".join(line for line in said.splitlines(keepends=True)
                    if _ANNOUNCEMENT not in line)
  if others:
    os.write(1, others)


def read(data: bytes, devices: dict[str, str], task: str,
         began: int) -> reading_lib.Reading:
  """Returns what a process did, from a profiler's file.

  Args:
    data: the file.
    devices: by the names of ops in graphs, the devices that they have there.
    task: the process's, as devices' names begin; its first CPU is where ops run
      of which nothing is known.
    began: when the profile was asked for, in nanoseconds since 1970: that of
      TensorFlow 2.16 doesn't say when it began.
  """
  space = tf_compat.profile_of(data)
  planes = {plane.name: plane for plane in space.planes}
  times = _stats(planes[_ENVIRONMENT], planes[_ENVIRONMENT].stats) if (
      _ENVIRONMENT in planes) else {}
  origin = times.get("profile_start_time", began)
  threads = []
  if _HOST in planes:
    plane = planes[_HOST]
    names = {number: one.name for number, one in plane.event_metadata.items()}
    for line in plane.lines:
      threads.append([_event(plane, names, event, line.timestamp_ns)
                      for event in line.events])
  last = max((event.end for events in threads for event in events),
             default=0.0)
  stop = (times.get("profile_stop_time", origin) - origin) / 1e9
  return reading_lib.read(threads, max(last, stop), devices,
                          f"{task}/device:CPU:0", origin)


def _event(plane: Any, names: dict[int, str], event: Any,
           line_start: int) -> reading_lib.Event:
  start = line_start / 1e9 + event.offset_ps / 1e12
  return reading_lib.Event(
      names[event.metadata_id], start, start + event.duration_ps / 1e12,
      _stats(plane, event.stats) if event.stats else {})


def _stats(plane: Any, stats: Any) -> dict[str, Any]:
  found = {}
  for stat in stats:
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind) if kind else None
    if kind == "ref_value":
      value = plane.stat_metadata[value].name
    found[plane.stat_metadata[stat.metadata_id].name] = value
  return found


def devices_in(graphs: Sequence[Any]) -> dict[str, str]:
  """Returns the devices that graphs give to their ops, by the ops' names."""
  found: dict[str, str] = {}
  for graph in graphs:
    for op in graph.get_operations():
      if op.device.startswith("/job:"):
        found[op.name] = op.device
  return found


Tell = Callable[[Any], list[Any]]


def exchange(tell: Tell, rounds: int = 5) -> list[tuple[float, float]]:
  """Returns when this program asked all others, and when it had the answers."""
  found = []
  for _ in range(rounds):
    before = time.time()
    tell(0)
    found.append((before, time.time()))
  return found
