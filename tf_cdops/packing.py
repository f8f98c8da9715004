"""Joins several tensors of one device into one vector, and parts them again."""

from collections.abc import Sequence

import tensorflow as tf


def pack(tensors: Sequence[tf.Tensor], device: str) -> tf.Tensor:
  """Returns one vector of all tensors' elements; one tensor stays as it is."""
  if len(tensors) == 1:
    return tensors[0]
  with tf.device(device):
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


def unpack(packed: tf.Tensor, like: Sequence[tf.Tensor],
           device: str) -> list[tf.Tensor]:
  """Returns tensors of the shapes of `like` from the vector of `pack`."""
  if len(like) == 1:
    return [packed]
  with tf.device(device):
    parts = tf.split(packed, [t.shape.num_elements() for t in like])
    return [tf.reshape(part, tensor.shape)
            for part, tensor in zip(parts, like, strict=True)]
