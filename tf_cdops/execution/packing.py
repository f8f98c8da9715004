"""Joins several tensors of one device into one, and parts them again."""

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

  @property
  def alike(self) -> bool:
    """Whether all have one shape: then they need no reshaping, nor copying out.

    TensorFlow's Unpack shares the memory of aligned parts; Split of a vector
    copies each.
    """
    return all(shape == self.shapes[0] for shape in self.shapes)

  def pack(self, tensors: Sequence[tf.Tensor], place: str,
           emitter: emitting.Emitter) -> tf.Tensor:
    """Returns one tensor with all tensors' elements."""
    if len(tensors) == 1:
      return tensors[0]
    if self.alike:
      return emitter.stack(tensors, place)
    return emitter.concat([emitter.flat(t, place) for t in tensors], place)

  def unpack(self, packed: tf.Tensor, place: str,
             emitter: emitting.Emitter) -> list[tf.Tensor]:
    """Returns the tensors that a pack consists of."""
    if len(self.shapes) == 1:
      return [packed]
    if self.alike:
      return emitter.unstack(packed, len(self.shapes), place)
    return [part if shape.rank == 1
            else emitter.reshape(part, tuple(shape), place)
            for part, shape in zip(emitter.split(packed, self.lengths, place),
                                   self.shapes, strict=True)]
