"""Runs cross-device ops in each mode of TensorFlow and tells what came out."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from tests import virtual_devices

import tensorflow as tf

SUM = tf.distribute.ReduceOp.SUM
MEAN = tf.distribute.ReduceOp.MEAN
MODES = ("eager", "function", "graph")
# A v1 session has devices of its own, this many.
GRAPH_DEVICES = 4


@dataclasses.dataclass
class Result:
  """All that a caller can see of one result, to be compared as a whole."""

  container: str
  kinds: list[str]
  devices: list[str]
  dtypes: list[str]
  # Filled when the tensors have been run.
  arrays: list[Any] = dataclasses.field(default_factory=list)


def slices(values: Any, indices: Any, dense_shape: Any = None, *,
           dtype: Any = tf.float32, index_dtype: Any = tf.int64,
           device: str | None = None) -> tf.IndexedSlices:
  """Returns tf.IndexedSlices, on `device` if it is given."""
  with tf.device(device):
    return tf.IndexedSlices(
        tf.identity(tf.constant(values, dtype)),
        tf.identity(tf.constant(indices, index_dtype)),
        None if dense_shape is None else tf.identity(dense_shape))


def per_replica_slices(*replicas: Sequence[Any], **kwargs: Any) -> Any:
  """Returns a PerReplica of slices: (values, indices[, shape]) a replica."""
  return virtual_devices.per_replica([
      slices(*replica, device=device, **kwargs) for replica, device in zip(
          replicas, virtual_devices.names(len(replicas)), strict=True)])


def local_results(result: Any) -> tuple[Any, ...]:
  """Returns what each device got."""
  if isinstance(result, tf.distribute.DistributedValues):
    return result.values
  return (result,)


def run(mode: str, emit: Callable[[], Sequence[Any]],
        open_session: Callable[[], Any] | None = None) -> list[Result]:
  """Runs `emit` in one of MODES and describes each result it returns.

  Args:
    mode: one of MODES.
    emit: returns results, in eager code or for a graph.
    open_session: makes the session of mode "graph"; `session` if None.

  Returns:
    What each result is, with its numbers.
  """
  if mode == "eager":
    described, tensors = _describe(emit())
    arrays = [tensor.numpy() for tensor in tensors]
  elif mode == "function":
    traced = []
    def step() -> list[tf.Tensor]:
      described, tensors = _describe(emit())
      traced.append(described)
      return tensors
    arrays = [t.numpy() for t in tf.function(step, autograph=False)()]
    described = traced[0]
  else:
    with tf.Graph().as_default():
      described, tensors = _describe(emit())
      with (open_session or session)() as sess:
        sess.run(tf.compat.v1.global_variables_initializer())
        arrays = sess.run(tensors)
  remaining = iter(arrays)
  for result in described:
    result.arrays = [next(remaining).tolist() for _ in result.dtypes]
  return described


def session() -> tf.compat.v1.Session:
  """Returns a session on the default graph, with GRAPH_DEVICES devices."""
  return tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(
      device_count={"CPU": GRAPH_DEVICES}))


def _describe(results: Sequence[Any]) -> tuple[list[Result], list[tf.Tensor]]:
  """Returns the results, still without arrays, and the tensors to run."""
  described, tensors = [], []
  for result in results:
    parts = local_results(result)
    components = [c for part in parts for c in _components(part)]
    tensors.extend(tf.convert_to_tensor(c) for c in components)
    described.append(Result(
        container=(type(result).__name__ if isinstance(
            result, tf.distribute.DistributedValues) else "one value"),
        kinds=[_kind(part) for part in parts],
        devices=[c.device for c in components],
        dtypes=[c.dtype.name for c in components]))
  return described, tensors


def _components(part: Any) -> list[Any]:
  if not isinstance(part, tf.IndexedSlices):
    return [part]
  shape = [] if part.dense_shape is None else [part.dense_shape]
  return [part.values, part.indices, *shape]


def _kind(part: Any) -> str:
  return next(kind.__name__ for kind in (
      tf.IndexedSlices, tf.Variable, tf.Tensor) if isinstance(part, kind))
