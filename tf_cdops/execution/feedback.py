"""Error feedback: what a wire's rounding lost is added in the next step.

Without it, numbers that are small beside others of their message are rounded
to the same side step after step, and that adds up. Reference: Karimireddy et
al., "Error feedback fixes SignSGD and other gradient compression schemes",
2019.
"""

import threading
from typing import Any

import tensorflow as tf

from tf_cdops.base import tf_compat
from tf_cdops.fabric import base


_MOST = 64  # Batches; a long run may have ever new shapes.


class Feedback:
  """What was lost, one variable for each message of each batch.

  Each is on the device that sends the message, so they aren't mirrored. They
  are made once per batch of tensors; a new process begins with zeros, which
  does no harm. A v1 graph has its own, to be initialized with its other
  variables.
  """

  def __init__(self) -> None:
    self._batches: dict[Any, BatchFeedback] = {}
    self._lock = threading.Lock()

  def __deepcopy__(self, memo: Any) -> "Feedback":
    return Feedback()

  def of_batch(self, *batch: Any) -> "BatchFeedback":
    """Returns that of a batch, which the arguments tell from others."""
    key = batch, None if _are_functions() else (
        tf.compat.v1.get_default_graph())
    with self._lock:
      found = self._batches.pop(key, None) or BatchFeedback({})
      self._batches[key] = found
      for oldest in list(self._batches)[:-_MOST]:
        del self._batches[oldest]
    return BatchFeedback(found.lost)


class BatchFeedback:
  """That of one batch, message by message, in the order they are made."""

  def __init__(self, lost: dict[Any, tf.Variable]):
    self.lost, self._count = lost, 0

  def encode(self, vector: tf.Tensor, codec: base.Codec,
             place: str) -> tf.Tensor:
    """Returns a vector's message, with what was lost the last time."""
    self._count += 1
    lost = self._variable((self._count, place), vector, place)
    wanted = vector + lost
    message = codec.encode(wanted)
    rest = wanted - codec.decode(message, wanted)
    # What isn't finite stays so by itself; it mustn't come back.
    kept = lost.assign(tf.where(tf.math.is_finite(rest), rest, 0.0),
                       read_value=not _are_functions())
    if _are_functions():
      return message  # A function makes all assignments there are.
    with tf.control_dependencies([kept]):
      return tf.identity(message)

  def _variable(self, key: Any, like: tf.Tensor, place: str) -> tf.Variable:
    if key not in self.lost:
      with tf.init_scope(), tf.device(place):
        self.lost[key] = tf_compat.unmirrored_variable(
            tf.zeros([like.shape.num_elements()], like.dtype))
    return self.lost[key]


def _are_functions() -> bool:
  """Whether graphs are those of tf.function, and not TensorFlow 1's."""
  there: bool = tf.compat.v1.executing_eagerly_outside_functions()
  return there
