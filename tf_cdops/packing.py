"""Joins several tensors of one device into one vector, and parts them again."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tf_cdops.fabric import emitting


@dataclasses.dataclass(frozen=True)
class Layout:
  """How tensors lie in a pack; it is the same on every device.

  A pack of one tensor is that tensor, in its own shape, known or not.
  """

  shapes: tuple[tf.TensorShape, ...]
  lengths: tuple[int, ...]

  @classmethod
  def of(cls, tensors: Sequence[tf.Tensor]) -> "Layout":
    """Returns the layout of tensors in this order."""
    shapes = tuple(tensor.shape for tensor in tensors)
    return cls(shapes, tuple(shape.num_elements() for shape in shapes))

  def pack(self, tensors: Sequence[tf.Tensor], place: str,
           emitter: emitting.Emitter) -> tf.Tensor:
    """Returns one vector of all tensors' elements."""
    if len(tensors) == 1:
      return tensors[0]
    return emitter.concat([emitter.flat(t, place) for t in tensors], place)

  def unpack(self, packed: tf.Tensor, place: str,
             emitter: emitting.Emitter) -> list[tf.Tensor]:
    """Returns the tensors that a vector consists of."""
    if len(self.shapes) == 1:
      return [packed]
    return [part if shape.rank == 1
            else emitter.reshape(part, tuple(shape), place)
            for part, shape in zip(emitter.split(packed, self.lengths, place),
                                   self.shapes, strict=True)]
