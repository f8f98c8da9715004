"""Counts the all-reduces that a program has come to, as they run.

A function may begin with reading its input, and be stuck there. So that a
program has called it doesn't tell that it has come to its all-reduces.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_cdops.base import tf_compat


class Progress:
  """A number that grows in all programs alike, of which each has its own."""

  def __init__(self) -> None:
    self._variable: tf.Variable | None = None

  def note(self, tensors: Sequence[tf.Tensor]) -> None:
    """Emits an op that counts one more, once the first of tensors is there."""
    if self._variable is None:  # TensorFlow has begun by now.
      with tf.init_scope(), tf.device("CPU:0"):
        self._variable = tf_compat.unmirrored_variable(
            tf.constant(0, tf.int64))
    with tf.control_dependencies(list(tensors[:1])):
      self._variable.assign_add(1)

  @property
  def count(self) -> int:
    """How many all-reduces this program has come to so far."""
    return 0 if self._variable is None else int(self._variable.numpy())
