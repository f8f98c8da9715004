"""What callers hand over, checked and made uniform before any op is emitted.

tf.distribute.CrossDeviceOps answers some calls before its subclass sees them
(a single value, say), and leaves others to fail in a kernel. Everything that
can be known without running is checked here, for one value and for batches.
"""

from collections.abc import Sequence
from typing import Any

from absl import logging
import numpy as np
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tensorflow_1
from tf_cdops.base import tf_compat
from tf_cdops.execution import devices
from tf_cdops.execution import sparse
from tf_cdops.fabric import engines
from tf_cdops.planning import planner

_NOT_A_NUMBER = frozenset({tf.bool, tf.string, tf.variant, tf.resource})
_VALUES = (tf.Tensor, tf.Variable, tf.IndexedSlices)
_DESTINATION_TYPES = (tf.distribute.DistributedValues, tf.Variable, tf.Tensor,
                      tf.IndexedSlices, str)
_DESTINATIONS = ("a tf.distribute.DistributedValues, a tf.Variable, a "
                 "tf.Tensor, a tf.IndexedSlices or a device string")


def check_reduce_op(reduce_op: Any) -> None:
  if not isinstance(reduce_op, tf.distribute.ReduceOp):
    raise errors.InputError(
        f"`reduce_op` ({reduce_op!r}) must be tf.distribute.ReduceOp.SUM or "
        "tf.distribute.ReduceOp.MEAN."
        + tensorflow_1.reduce_op_instead_of(reduce_op))


def check_destinations(destinations: Any) -> None:
  """Raises unless `destinations` names at least one device."""
  if not isinstance(destinations, _DESTINATION_TYPES):
    raise errors.InputError(
        f"`destinations` ({_brief(destinations)}) must be {_DESTINATIONS}."
        + tensorflow_1.destinations_instead_of(destinations))
  if isinstance(destinations, str):
    if not destinations:
      raise errors.InputError(
          "`destinations` ('') must be a device. Where it is that of a "
          "function's argument, which has none while the function is traced, "
          "reduce tf.identity(value) in the replica's function.")
    devices.check_present(destinations, "destinations")
  elif isinstance(destinations, tf.distribute.DistributedValues):
    if not destinations.values:
      raise errors.InputError(
          "`destinations` (no values) must have at least one device; pass the "
          "value itself for an all-reduce, or a device string.")
  elif not devices.device_of(destinations):
    raise errors.InputError(
        f"`destinations` ({_brief(destinations)}) has no device here, inside a "
        "tf.function or graph; pass a device string instead.")


def destination_devices(destinations: Any) -> tuple[str, ...]:
  """Returns the devices that checked `destinations` stand for."""
  if isinstance(destinations, str):
    return (tf_compat.full_device_name(destinations),)
  if isinstance(destinations, tf.distribute.DistributedValues):
    return devices.devices_of(destinations.values)
  return (tf_compat.full_device_name(devices.device_of(destinations)),)


def value_to_reduce(value: Any) -> tf.distribute.DistributedValues:
  """Returns `value` as distributed values that can be summed."""
  distributed = _as_distributed(value, "per_replica_value")
  _check_summable(distributed.values, "per_replica_value")
  return distributed


def tensors_to_reduce(tensors: Any) -> list[Any]:
  """Returns a list of tensors or variables that can be summed."""
  if not isinstance(tensors, (list, tuple)) or not tensors:
    raise errors.InputError(
        f"`tensors` ({_brief(tensors)}) must be a list with one tensor "
        "per device.")
  for i, tensor in enumerate(tensors):
    if sparse.is_sparse(tensor):
      raise errors.InputError(
          f"`tensors[{i}]` (tf.IndexedSlices) must be dense; use "
          "tf.convert_to_tensor, or a cross-device ops class.")
  values = [_as_tensor(tensor, f"tensors[{i}]")
            for i, tensor in enumerate(tensors)]
  _check_summable(values, "tensors")
  return values


def _check_summable(values: Sequence[Any], argument: str) -> None:
  first = values[0]
  if first.dtype.base_dtype in _NOT_A_NUMBER:
    raise errors.InputError(
        f"`{argument}` has dtype {first.dtype.name}, which has no sum; cast it "
        "to a number first.")
  dtype, shape = first.dtype, first.shape
  dense = not isinstance(first, tf.IndexedSlices)
  for replica, other in enumerate(values[1:], start=1):
    # Nearly always so, and in eager mode this is what a step waits for.
    if (dense and other.dtype == dtype and isinstance(other, tf.Tensor)
        and other.shape == shape):
      continue
    _check_same_dtype(first, other, replica)
    if sparse.is_sparse(first) or sparse.is_sparse(other):
      _check_same(_rows(first), _rows(other), replica, "slices of shape")
      _check_same(_dense_shape(first), _dense_shape(other), replica,
                  "dense_shape")
    else:
      _check_same(first.shape, other.shape, replica, "shape")


def value_to_gather(value: Any, axis: Any) -> tf.distribute.DistributedValues:
  """Returns `value` as distributed values that can be joined along `axis`."""
  distributed = _as_distributed(value, "value")
  for other in distributed.values:
    if sparse.is_sparse(other):
      raise errors.InputError(
          "`value` (tf.IndexedSlices) can't be gathered; gather its `values` "
          "and `indices`, or use tf.convert_to_tensor first.")
  first = distributed.values[0]
  if first.dtype.base_dtype in (tf.variant, tf.resource):
    raise errors.InputError(
        f"`value` has dtype {first.dtype.name}, which can't be gathered.")
  _without(first.shape, axis)
  for replica, other in enumerate(distributed.values[1:], start=1):
    _check_same_dtype(first, other, replica)
    _check_joinable(first.shape, other.shape, replica, axis)
  return distributed


def value_to_broadcast(value: Any) -> Any:
  """Returns `value` as one tensor, variable or IndexedSlices."""
  if isinstance(value, tf_compat.Mirrored):
    return value.values[0]
  if isinstance(value, tf_compat.PerReplica):
    raise errors.InputError(
        f"`tensor` ({_brief(value)}) must be one value; pick one, for example "
        "with strategy.experimental_local_results(value)[0].")
  return _as_tensor(value, "tensor")


def pairs_to_reduce(pairs: Any) -> list[tuple[Any, Any]]:
  """Returns a batch's checked (distributed values, destinations) pairs."""
  try:
    items = iter(pairs)
  except TypeError:
    raise errors.InputError(
        f"`value_destination_pairs` ({_brief(pairs)}) must be an iterable of "
        "(value, destinations) tuples.") from None
  checked = []
  for position, pair in enumerate(items):
    where = f"`value_destination_pairs[{position}]`"
    if not isinstance(pair, tuple) or len(pair) != 2:
      raise errors.InputError(
          f"{where} ({_brief(pair)}) must be a tuple of two: (value, "
          "destinations).")
    value, destinations = pair
    try:
      check_destinations(destinations)
      checked.append((value_to_reduce(value), destinations))
    except errors.Error as error:
      raise type(error)(f"{where}: {error}") from None
  return checked


def size_of(replicas: Sequence[tf.Tensor]) -> planner.TensorSize:
  """Returns what a plan needs to know of a tensor that replicas have."""
  dtype, shape = replicas[0].dtype, replicas[0].shape
  count = shape.num_elements()
  # In a graph, a shape may be known on one device and not on another.
  known = count is not None and (tf.executing_eagerly() or all(
      tensor.shape == shape or tensor.shape.is_fully_defined()
      for tensor in replicas))
  return planner.TensorSize(dtype.name, count * dtype.size if known else None)


def engine_options(options: Any) -> engines.Options:
  """Returns what CommunicationOptions, or None, asks of a native engine."""
  if options is None:
    return engines.Options()
  if options.timeout_seconds is not None:
    logging.log_first_n(
        logging.WARNING,
        "CommunicationOptions: `timeout_seconds` (%s) isn't heeded: on a "
        "collective op it ends no wait, and starts a thread for each op and "
        "step. tf_cdops.cluster.StepWatchdog(None, limit) ends a program whose "
        "step takes too long; a v1 session's run takes "
        "tf.compat.v1.RunOptions(timeout_in_ms=...).", 1,
        options.timeout_seconds)
  return engines.Options(options.implementation.value.lower())


def _as_distributed(value: Any, argument: str) -> Any:
  if not isinstance(value, tf.distribute.DistributedValues):
    return tf_compat.PerReplica((_as_tensor(value, argument),))
  if not value.values:
    raise errors.InputError(
        f"`{argument}` (no values) must have a value for each replica.")
  if all(isinstance(part, _VALUES) for part in value.values):
    return value
  return tf_compat.PerReplica(tuple(
      _as_tensor(part, f"{argument}, replica {replica}")
      for replica, part in enumerate(value.values)))


def _as_tensor(value: Any, argument: str) -> Any:
  """Returns a TensorFlow value as it is and makes a tensor of the rest."""
  if isinstance(value, _VALUES):
    return value
  if value is not None and not isinstance(value, (str, bytes)):
    try:
      return tf.convert_to_tensor(value)
    except (TypeError, ValueError, NotImplementedError):
      pass
  raise errors.InputError(
      f"`{argument}` ({_brief(value)}) must be a tensor, a variable, "
      "tf.IndexedSlices, a NumPy array, or distributed values of those.")


def _check_same_dtype(first: Any, other: Any, replica: int) -> None:
  if first.dtype.base_dtype != other.dtype.base_dtype:
    raise errors.InputError(
        f"replica 0 has dtype {first.dtype.name} and replica {replica} has "
        f"{other.dtype.name}; all replicas must have the same dtype: cast "
        "them before the reduction.")


def _check_same(first: tf.TensorShape, other: tf.TensorShape, replica: int,
                what: str) -> None:
  if not first.is_compatible_with(other):
    raise errors.InputError(
        f"replica 0 has {what} {_shape(first)} and replica {replica} has "
        f"{_shape(other)}; all replicas must have the same.")


def _check_joinable(first: tf.TensorShape, other: tf.TensorShape,
                    replica: int, axis: Any) -> None:
  # Ranks first: the axis may be none of the other's dimensions.
  same_rank = None in (first.rank, other.rank) or first.rank == other.rank
  if same_rank and _without(first, axis).is_compatible_with(
      _without(other, axis)):
    return
  at = tf.get_static_value(axis) if tf.is_tensor(axis) else axis
  where = "the axis that they are joined along" if at is None else f"axis {at}"
  raise errors.InputError(
      f"replica 0 has shape {_shape(first)} and replica {replica} has shape "
      f"{_shape(other)}; they must have the same rank, and differ only in "
      f"{where}: reshape, pad or cut them first.")


def _rows(value: Any) -> tf.TensorShape:
  """The shape of one slice of a sparse or dense value."""
  return (value.values if sparse.is_sparse(value) else value).shape[1:]


def _dense_shape(value: Any) -> tf.TensorShape:
  if not sparse.is_sparse(value):
    return value.shape
  static = (None if value.dense_shape is None
            else tf.get_static_value(value.dense_shape))
  if static is None:
    return tf.TensorShape([None]).concatenate(value.values.shape[1:])
  return tf.TensorShape(static.tolist())


def _without(shape: tf.TensorShape, axis: Any) -> tf.TensorShape:
  """Returns `shape` less its `axis`, checking that it has one."""
  at = tf.get_static_value(axis) if tf.is_tensor(axis) else axis
  if (at is None and tf.is_tensor(axis)) or shape.rank is None:
    return tf.TensorShape(None)
  if isinstance(at, np.ndarray) and at.ndim == 0:
    at = at[()]
  if isinstance(at, bool) or not isinstance(at, (int, np.integer)):
    raise errors.InputError(f"`axis` ({axis!r}) must be an integer.")
  if not -shape.rank <= at < shape.rank:
    raise errors.InputError(
        f"`axis` ({at}) must be a dimension of the value, whose shape is "
        f"{_shape(shape)}"
        + (".", "; give it one with value[None].")[shape.rank == 0])
  dims: Sequence[Any] = shape.as_list()
  at = int(at) % shape.rank
  return tf.TensorShape([*dims[:at], *dims[at + 1:]])


def _shape(shape: tf.TensorShape) -> str:
  return str(tuple(shape)) if shape.rank is not None else "unknown"


def _brief(value: Any) -> str:
  """Names a value's type, with its contents if they are short."""
  text = repr(value)
  kind = type(value).__name__
  return f"{kind}: {text}" if len(text) <= 60 else kind
