"""Sums of tf.IndexedSlices: slices are gathered, never made dense."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors

MODES = ("gather", "deduplicate", "dense")


def check_mode(mode: Any) -> str:
  """Returns `mode` if it is one of MODES."""
  if mode not in MODES:
    raise errors.InputError(
        f"`sparse` ({mode!r}) must be one of "
        f"{', '.join(map(repr, MODES))}.{errors.did_you_mean(mode, MODES)}")
  return mode


def is_sparse(value: Any) -> bool:
  return isinstance(value, tf.IndexedSlices)


def add_slices(values: Sequence[Any]) -> tf.IndexedSlices:
  """Sums IndexedSlices by joining them; an index may then occur twice.

  Args:
    values: one per replica. Dense tensors may be among them: a layer that is
      used sparsely in one replica can be used densely in another.

  Returns:
    IndexedSlices with every slice of every replica, in replica order.
  """
  slices = [_as_slices(value) for value in values]
  if len(slices) == 1:
    return slices[0]
  indices = [s.indices for s in slices]
  if len({i.dtype for i in indices}) > 1:
    indices = [tf.cast(i, tf.int64) for i in indices]
  shapes = [s.dense_shape for s in slices if s.dense_shape is not None]
  return tf.IndexedSlices(
      values=tf.concat([s.values for s in slices], 0),
      indices=tf.concat(indices, 0),
      dense_shape=tf.identity(shapes[0]) if shapes else None)


def prepare(values: Sequence[Any], names: Sequence[str],
            mode: str) -> list[Any]:
  """Returns each replica's slices as `mode` wants them sent.

  Args:
    values: one per replica; tensors, IndexedSlices, or both.
    names: the replicas' devices.
    mode: "dense" needs to know the dense shape; without one, slices stay.

  Returns:
    One value per replica; with mode "dense", all dense or none.
  """
  slices = [value for value in values if is_sparse(value)]
  if not slices or mode == "gather" or (mode == "dense" and any(
      value.dense_shape is None for value in slices)):
    return list(values)
  convert = tf.convert_to_tensor if mode == "dense" else _deduplicated
  prepared = []
  for value, name in zip(values, names, strict=True):
    with tf.device(name):
      prepared.append(convert(value) if is_sparse(value) else value)
  return prepared


def divide(slices: tf.IndexedSlices, count: int) -> tf.IndexedSlices:
  """Divides every slice by `count`, with tf.distribute's result dtype."""
  return tf.IndexedSlices(
      slices.values / count, slices.indices, slices.dense_shape)


def copy(slices: tf.IndexedSlices) -> tf.IndexedSlices:
  """Copies the slices to the current device."""
  shape = slices.dense_shape
  return tf.IndexedSlices(
      tf.identity(slices.values), tf.identity(slices.indices),
      None if shape is None else tf.identity(shape))


def _deduplicated(slices: tf.IndexedSlices) -> tf.IndexedSlices:
  """Adds up the slices of one index."""
  unique, position = tf.unique(slices.indices)
  return tf.IndexedSlices(
      tf.math.unsorted_segment_sum(slices.values, position, tf.size(unique)),
      unique, slices.dense_shape)


def _as_slices(value: Any) -> tf.IndexedSlices:
  if is_sparse(value):
    return value
  shape = tf.shape(value)
  return tf.IndexedSlices(value, tf.range(shape[0]), shape)
