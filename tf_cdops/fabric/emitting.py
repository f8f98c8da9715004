"""Emits the few ops that all-reduces are made of, in as few nodes as can be.

Reshaping, joining and splitting take small constants: a shape, an axis, sizes.
A batch has thousands of such ops, so those of one device share one constant of
each value. The ops are raw: the public functions wrap every call in checks and
name scopes, which for a batch come to seconds.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_cdops.base import tf_compat


class Emitter:
  """Emits the ops of one batch, into one graph or, in eager mode, at once."""

  def __init__(self) -> None:
    self._constants: dict[tuple[str, object], tf.Tensor] = {}

  def flat(self, tensor: tf.Tensor, place: str) -> tf.Tensor:
    """Returns the elements as a vector; a vector stays as it is."""
    if tensor.shape.rank == 1:
      return tensor
    return self.reshape(tensor, (-1,), place)

  def reshape(self, tensor: tf.Tensor, shape: tuple[int, ...],
              place: str) -> tf.Tensor:
    with tf.device(place):
      return tf.raw_ops.Reshape(tensor=tensor,
                                shape=self._constant(shape, place))

  def concat(self, vectors: Sequence[tf.Tensor], place: str) -> tf.Tensor:
    """Joins vectors."""
    with tf.device(place):
      return tf.raw_ops.ConcatV2(values=list(vectors),
                                 axis=self._constant(0, place))

  def split(self, vector: tf.Tensor, lengths: Sequence[int],
            place: str) -> list[tf.Tensor]:
    """Cuts a vector into parts of these lengths."""
    with tf.device(place):
      axis = self._constant(0, place)
      if len(set(lengths)) == 1:
        return tf.raw_ops.Split(axis=axis, value=vector,
                                num_split=len(lengths))
      return tf.raw_ops.SplitV(
          value=vector, size_splits=self._constant(tuple(lengths), place),
          axis=axis, num_split=len(lengths))

  def stack(self, tensors: Sequence[tf.Tensor], place: str) -> tf.Tensor:
    """Joins tensors of one shape along a new first axis."""
    with tf.device(place):
      return tf.raw_ops.Pack(values=list(tensors), axis=0)

  def unstack(self, stacked: tf.Tensor, count: int,
              place: str) -> list[tf.Tensor]:
    """Parts what `stack` joined."""
    with tf.device(place):
      return tf.raw_ops.Unpack(value=stacked, num=count, axis=0)

  def _constant(self, value: int | tuple[int, ...], place: str) -> tf.Tensor:
    """Returns the constant; call it where `place` is the device."""
    key = place, value
    if key not in self._constants:
      self._constants[key] = tf.constant(value, tf.int32)
    return self._constants[key]


def copy(tensor: tf.Tensor, place: str) -> tf.Tensor:
  """Returns the tensor on `place`."""
  copied = tf_compat.copied_now(tensor, place)
  if copied is not None:
    return copied
  with tf.device(place):
    return tf.raw_ops.Identity(input=tensor)

