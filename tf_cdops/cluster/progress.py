"""Counts the all-reduces that a program has come to, as they run.

A function may begin with reading its input, and be stuck there. So that a
program has called it doesn't tell that it has come to its all-reduces.
"""

import hashlib
from collections.abc import Sequence

import tensorflow as tf

from tf_cdops.base import tf_compat

_BYTES = 6


class Progress:
  """Numbers that grow in all programs alike, of which each has its own."""

  def __init__(self) -> None:
    self._variable: tf.Variable | None = None

  def note(self, tensors: Sequence[tf.Tensor],
           alike: Sequence[tf.Tensor] = ()) -> None:
    """Emits an op that counts one more, once the first of tensors is there.

    Args:
      tensors: what is reduced, or gathered.
      alike: those of them that must have the same shapes in all programs.
    """
    if self._variable is None:  # TensorFlow has begun by now.
      with tf.init_scope(), tf.device("CPU:0"):
        self._variable = tf_compat.unmirrored_variable(
            tf.zeros([2], tf.int64))
    grown = tf.stack([tf.constant(1, tf.int64), _number_of_shapes(alike)])
    with tf.control_dependencies(list(tensors[:1])):
      self._variable.assign_add(grown)

  @property
  def numbers(self) -> tuple[int, int]:
    """How many all-reduces this program has come to, and of which shapes.

    The second is a sum of numbers that stand for shapes: programs that have
    come to as many all-reduces, and differ in it, wait for different ones.
    """
    if self._variable is None:
      return 0, 0
    count, shapes = self._variable.numpy().tolist()
    return count, shapes


def _number_of_shapes(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """Returns a number that stands for the shapes, in their order."""
  known = [(tensor.dtype.name, tensor.shape.as_list())
           if tensor.shape.is_fully_defined() else None for tensor in tensors]
  digest = hashlib.blake2b(repr(known).encode(), digest_size=_BYTES).digest()
  # The sizes of others are known when they run. Sums may wrap around.
  return tf.add_n([tf.constant(int.from_bytes(digest, "big"), tf.int64), *(
      (place + 1) * tf.size(tensor, tf.int64)
      for place, tensor in enumerate(tensors) if known[place] is None)])
