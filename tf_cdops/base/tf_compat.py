"""The only file that uses TensorFlow's private symbols.

Each one is here because no public name does its job. Checked with TensorFlow
2.16 and 2.21.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.client import pywrap_tf_session as _session
from tensorflow.python.distribute import (
    collective_all_reduce_strategy as _collective_strategy)
from tensorflow.python.distribute import device_util as _device_util
from tensorflow.python.distribute import multi_worker_util as _multi_worker_util
from tensorflow.python.distribute import values as _values
from tensorflow.python.distribute import values_util as _values_util
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import resource_variable_ops as _variables

# What MirroredStrategy hands over and expects back. The public
# tf.distribute.DistributedValues is their base but can't be instantiated.
PerReplica = _values.PerReplica
Mirrored = _values.Mirrored
# What a thread is in while it traces a function; another thread can see that.
TRACING = _func_graph.func_graph_from_py_func.__code__


def mirrored(values: Sequence[Any]) -> Any:
  """Returns what tf.distribute uses for a result: Mirrored, or the one value.

  tf.distribute never wraps a single result; callers rely on that.
  """
  return values[0] if len(values) == 1 else Mirrored(tuple(values))


def unmirrored_variable(initial_value: Any) -> Any:
  """Returns a variable of one device, under a strategy's scope, too.

  A strategy makes of every tf.Variable one on each of its devices, and has no
  public way around. In a v1 graph it is a local one, which no checkpoint has.
  """
  return _variables.ResourceVariable(
      initial_value, trainable=False, name="tf_cdops_wire",
      collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES])


@contextlib.contextmanager
def unoptimized() -> Iterator[None]:
  """Functions that this thread calls here are run as they were traced.

  Public options hold for the whole program.
  """
  context = _context.context()
  before = context.function_call_options
  config = tf.compat.v1.ConfigProto.FromString(before.config_proto_serialized)
  config.graph_options.rewrite_options.disable_meta_optimizer = True
  context.function_call_options = _context.FunctionCallOptions(
      before.executor_type, config)
  try:
    yield
  finally:
    context.function_call_options = before


class SavedAsTensor(tf.__internal__.tracking.Trackable):
  """What a tf.train.Checkpoint saves as one tensor that it makes itself.

  Public ways save a variable as TensorFlow does, which of an ON_READ one keeps
  the sum over replicas. A subclass has `to_tensor` and `from_tensor`.
  """

  def to_tensor(self) -> tf.Tensor:
    """Returns what is saved."""
    raise NotImplementedError

  def from_tensor(self, saved: tf.Tensor) -> None:
    """Takes what was saved."""
    raise NotImplementedError

  def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
    return {"value": self.to_tensor()}

  def _restore_from_tensors(self, restored: dict[str, tf.Tensor]) -> None:
    self.from_tensor(restored["value"])


def track(parent: Any, child: SavedAsTensor, name: str) -> None:
  """Has a tf.train.Checkpoint of `parent` save `child`, too.

  Setting an attribute does so, but not where Keras has switched that off.
  """
  parent._track_trackable(child, name, overwrite=True)


def mirrored_strategy_over(
    devices: Sequence[str], cross_device_ops: Any,
    input_workers: Sequence[Sequence[str]] | None) -> Any:
  """Returns a MirroredStrategy over the devices of several workers.

  Its constructor refuses these while executing eagerly, and only there: a
  strategy made inside a graph works in eager code too. The attributes are
  those that the eager constructor would set.

  Args:
    devices: full names, in replica order.
    cross_device_ops: what it shall reduce with.
    input_workers: each worker's devices, if each shall have its own input
      pipeline; None for one pipeline on the first worker's host.
  """
  with tf.Graph().as_default():
    strategy = tf.distribute.MirroredStrategy(
        list(devices), cross_device_ops=cross_device_ops)
  extended = strategy.extended
  extended.experimental_enable_get_next_as_optional = True
  if input_workers is not None:
    extended._input_workers_devices = tuple(
        (_device_util.get_host_for_device(names[0]), tuple(names))
        for names in input_workers)
  return strategy


def cross_device_ops_of(strategy: Any) -> Any:
  """Returns what a strategy reduces with, if it has such a thing."""
  return getattr(strategy.extended, "_cross_device_ops", None)


# A worker's answer in a collective op is a list of strings of at most so many
# bytes, by default a page each, so that a message of 1 MB is 256 of them, to be
# allocated on both sides. With 64 KB, MobileNetV2's gradients took 0.85 of the
# time and 0.91 of the processors' (4 hosts at 1 Gbit/s); from 16 KB to 1 MB it
# made no difference. Larger ones malloc may fetch from the system each time.
_CHUNK = 64 << 10


class SpmdExtended(_collective_strategy.CollectiveAllReduceExtended):
  """What does MultiWorkerMirroredStrategy's work, with another way to reduce.

  The public class makes its own, and insists on TensorFlow's way. Of a worker
  without accelerators it takes one CPU, and this one takes all logical ones.
  """

  def __init__(self, strategy: Any, cluster_resolver: Any, options: Any,
               make_ops: Callable[[Sequence[str], int, int], Any]):
    """Initializes; waits for all workers.

    Args:
      strategy: whose it is.
      cluster_resolver: the workers; None for TF_CONFIG.
      options: tf.distribute.experimental.CommunicationOptions.
      make_ops: (devices, number of workers, number of this one) -> what it
        reduces with.
    """
    super().__init__(strategy, cluster_resolver=cluster_resolver,
                     communication_options=options)
    self._cross_device_ops = make_ops(self.worker_devices, self._num_workers,
                                      self._id_in_cluster)

  def _update_config_proto(self, config_proto: Any) -> Any:
    updated = super()._update_config_proto(config_proto)
    if not updated.experimental.recv_buf_max_chunk:
      updated.experimental.recv_buf_max_chunk = _CHUNK
    return updated

  def _initialize_local_devices(self, cluster_resolver: Any,
                                worker_device: str) -> Any:
    devices, kind = super()._initialize_local_devices(cluster_resolver,
                                                      worker_device)
    if kind == "CPU":
      # Those of other workers are listed, too.
      task = worker_device.replace("/task:", "/replica:0/task:")
      count = sum(device.name.startswith(f"{task}/") for device
                  in tf.config.list_logical_devices("CPU"))
      devices = tuple(f"{worker_device}/device:CPU:{i}" for i in range(count))
    return devices, kind


def configure_coordination(resolver: Any, join_seconds: float,
                           heartbeat_seconds: float) -> None:
  """Limits how long workers wait for each other, at their start and later.

  TensorFlow's strategy does the same without limits: it waits for an hour.
  """
  context = _context.context()
  if context.coordination_service is not None:
    return
  spec = _multi_worker_util.normalize_cluster_spec(resolver.cluster_spec())
  context.configure_coordination_service(
      service_type="standalone",
      service_leader=_multi_worker_util.coordination_leader(spec),
      cluster_register_timeout_in_ms=int(join_seconds * 1e3),
      heartbeat_timeout_in_ms=int(heartbeat_seconds * 1e3),
      coordinated_jobs=[
          _collective_strategy.coordination_config_pb2.CoordinatedJob(
              name=job, num_tasks=spec.num_tasks(job))
          for job in ("chief", "worker") if job in spec.jobs])


def mark_as_unsaveable() -> None:
  """Keeps a function with collective ops from being saved, as TF's own does."""
  _values_util.mark_as_unsaveable()


def full_device_name(name: str) -> str:
  """Returns the full name of a device, as tf.distribute understands it.

  Parts left out are those of the tf.device in force, which no public call
  tells.
  """
  return _device_util.resolve(name)


def copied_now(tensor: Any, device: str) -> Any:
  """Returns an eager tensor on another device; None if it can't be made now.

  A tape records it. The public tf.identity takes ten times as long, and in
  eager mode a batch has hundreds of copies.
  """
  if tf.executing_eagerly() and isinstance(tensor, _ops.EagerTensor):
    return tensor._copy(device_name=device)
  return None


def tensorflow_has_started() -> bool:
  """Whether TensorFlow's devices are fixed already.

  Listing the logical devices fixes them, after which a program can't
  configure any: constructors must not do that. No public call tells.
  """
  current = _context.context_safe()
  return current is not None and current._initialized


def is_in_cluster() -> bool:
  """Whether this process has become a task of a cluster, or its client."""
  current = _context.context_safe()
  return current is not None and (
      current._collective_ops_server_def or current.get_server_def()
  ) is not None


def value_at_call(make: Callable[[], int], key: str) -> tf.Tensor:
  """Returns an int32 that is made anew for each call of the function around.

  Args:
    make: makes it, in the thread that makes the call.
    key: of several with one key in a graph the first is used.
  """

  def made() -> tf.Tensor:
    with tf.device("CPU:0"):
      return tf.constant(make(), tf.int32)

  graph = _function_graph()
  captures = graph.function_captures.by_ref_external
  known = key in captures
  placeholder = graph.capture_call_time_value(
      made, tf.TensorSpec([], tf.int32), key=key)
  if known:
    return placeholder
  capture = captures[key]

  def captured() -> Any:
    # TensorFlow's own would wait for a branch, where one is traced, to be
    # called; what is called is the function around it.
    if isinstance(_function_graph(), _func_graph.FuncGraph):
      return [value_at_call(make, key)]
    return capture()

  captured.output_spec = capture.output_spec  # type: ignore[attr-defined]
  captures[key] = captured
  return placeholder


def _function_graph() -> Any:
  """Returns the graph of the function around; a branch or loop isn't one."""
  graph = tf.compat.v1.get_default_graph()
  while getattr(graph, "is_control_flow_graph", False):
    graph = graph.outer_graph
  return graph


class _Connections:
  """Counts the connections of this process to clusters."""

  last: Any = None
  number = 0


def connection_number() -> int:
  """Returns a number that changes when TensorFlow connects to a cluster anew.

  What lived on its devices is lost then. No public call tells.
  """
  current = _context.context().get_server_def()
  if current is not _Connections.last:
    _Connections.last = current  # Kept, so that no other gets its identity.
    _Connections.number += 1
  return _Connections.number


def device_incarnations() -> dict[str, int]:
  """Returns a number for each device of the cluster; another after a restart.

  The public list of devices has only their names.
  """
  context = _context.context()
  context.ensure_initialized()
  found = _pywrap_tfe.TFE_ContextListDevices(context._handle)
  try:
    return {_session.TF_DeviceListName(found, i):
            _session.TF_DeviceListIncarnation(found, i)
            for i in range(_session.TF_DeviceListCount(found))}
  finally:
    _session.TF_DeleteDeviceList(found)


def has_kernel(op: str, device_type: str) -> bool:
  """Whether this build has a kernel of `op` for a kind of device.

  Builds differ by platform and vendor; only the registered kernels tell.
  """
  return any(kernel.device_type == device_type for kernel
             in _kernels.get_registered_kernels_for_op(op).kernel)


def worker_addresses() -> dict[tuple[str, int], str]:
  """Returns the addresses of the tasks that this process is the client of.

  By (job, number); no public call tells what a program has connected to.
  """
  server = _context.context().get_server_def()
  if server is None:
    return {}
  return {(job.name, number): address for job in server.cluster.job
          for number, address in job.tasks.items()
          if (job.name, number) != (server.job_name, server.task_index)}


def let_go_of_workers() -> None:
  """Disconnects from all tasks but this one, whose own server runs on.

  The public call to connect wants another server, on a port of its own.
  """
  server = copy.deepcopy(_context.context().get_server_def())
  for job in list(server.cluster.job):
    if job.name != server.job_name:
      server.cluster.job.remove(job)
    else:
      for number in [n for n in job.tasks if n != server.task_index]:
        del job.tasks[number]
  _context.context().update_server_def(server)


def profile_of(data: bytes) -> Any:
  """Returns the content of a profiler's file; its public reader is a web page.

  It is an XSpace, whose planes have lines, one a thread, of events.
  """
  from tensorflow.tsl.profiler.protobuf import xplane_pb2
  return xplane_pb2.XSpace.FromString(data)
