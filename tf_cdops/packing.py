"""Joins several tensors of one device into one vector, and parts them again."""

from collections.abc import Sequence

import tensorflow as tf

from tf_cdops.fabric import emitting


def pack(tensors: Sequence[tf.Tensor], place: str,
         emitter: emitting.Emitter) -> tf.Tensor:
  """Returns one vector of all tensors' elements; one tensor stays as it is."""
  if len(tensors) == 1:
    return tensors[0]
  return emitter.concat([emitter.flat(t, place) for t in tensors], place)


def unpack(packed: tf.Tensor, shapes: Sequence[tf.TensorShape], place: str,
           emitter: emitting.Emitter) -> list[tf.Tensor]:
  """Returns tensors of these shapes from the vector of `pack`."""
  if len(shapes) == 1:
    return [packed]
  parts = emitter.split(packed, [s.num_elements() for s in shapes], place)
  return [part if shape.rank == 1
          else emitter.reshape(part, tuple(shape), place)
          for part, shape in zip(parts, shapes, strict=True)]
