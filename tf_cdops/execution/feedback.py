"""What a wire loses: error feedback, and a count of what was too large.

With feedback, what a message's rounding lost is added to the next step's.
Without it, numbers that are small beside others of their message are rounded
to the same side step after step, and that adds up. Reference: Karimireddy et
al., "Error feedback fixes SignSGD and other gradient compression schemes",
2019.
"""

import sys
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
    self._batches: dict[Any, dict[Any, tf.Variable]] = {}
    self._overflows: dict[Any, tf.Variable] = {}
    self._lock = threading.Lock()

  def __reduce__(self) -> Any:  # A copy, pickled or not, begins anew.
    return Feedback, ()

  def of_batch(self, *batch: Any) -> "BatchFeedback":
    """Returns that of a batch, which the arguments tell from others."""
    key = batch, _graph()
    with self._lock:
      lost = self._batches.pop(key, {})
      self._batches[key] = lost
      for oldest in list(self._batches)[:-_MOST]:
        del self._batches[oldest]
    return BatchFeedback(lost, self._overflows)

  def overflows(self) -> list[tf.Variable]:
    """Returns, of each device, how many numbers were too large so far."""
    return [counted for (_, graph), counted in self._overflows.items()
            if graph is _graph()]


class BatchFeedback:
  """That of one batch, message by message, in the order they are made."""

  def __init__(self, lost: dict[Any, tf.Variable],
               overflows: dict[Any, tf.Variable]):
    self._lost, self._overflows, self._count = lost, overflows, 0

  def encode(self, vector: tf.Tensor, codec: base.Codec,
             place: str) -> tf.Tensor:
    """Returns a vector's message, with what was lost the last time."""
    self._count += 1
    done = []
    if codec.has_feedback and vector.shape.is_fully_defined():
      lost = _made_once(self._lost, (self._count, place), place,
                        vector.shape, vector.dtype)
      vector = vector + lost
    if codec.overflows is not None:
      done.append(self._counted(codec.overflows(vector), codec, place))
    message = codec.encode(vector)
    if codec.has_feedback and vector.shape.is_fully_defined():
      rest = vector - codec.decode(message, vector)
      # What isn't finite stays so by itself; it mustn't come back.
      done.append(lost.assign(tf.where(tf.math.is_finite(rest), rest, 0.0)))
    if not done or _graph() is None:
      return message  # A function makes all assignments there are.
    with tf.control_dependencies(done):
      return tf.identity(message)

  def _counted(self, number: tf.Tensor, codec: base.Codec,
               place: str) -> tf.Operation:
    """Adds to a device's count, and says so there the first time."""
    counted = _made_once(self._overflows, (place, _graph()), place, (),
                         tf.int64)
    is_first = (counted == 0) & (number > 0)
    told = tf.cond(is_first, lambda: _told(number, codec, place),
                   lambda: False)
    with tf.control_dependencies([told]):
      return counted.assign_add(number)


def _told(number: tf.Tensor, codec: base.Codec, place: str) -> tf.Tensor:
  with tf.control_dependencies([tf.print(
      "tf_cdops:", number, f"numbers were too large for the wire "
      f"{codec.name}, and were sent as its largest ({place}). This is said "
      "once; wire_overflows() counts. Scale the loss down, or use bfloat16.",
      output_stream=sys.stderr)]):
    return tf.constant(True)


def _made_once(there: dict[Any, tf.Variable], key: Any, place: str,
               shape: Any, dtype: tf.DType) -> tf.Variable:
  """Returns a variable of one device, zero at first."""
  if key not in there:
    with tf.init_scope(), tf.device(place):
      there[key] = tf_compat.unmirrored_variable(tf.zeros(shape, dtype))
  return there[key]


def _graph() -> Any:
  """Returns TensorFlow 1's graph; None for eager code and functions."""
  if tf.compat.v1.executing_eagerly_outside_functions():
    return None
  return tf.compat.v1.get_default_graph()
