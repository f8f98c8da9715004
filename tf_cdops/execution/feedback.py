"""What a wire loses: error feedback, and a count of what was too large.

With feedback, what a message's rounding lost is added to the next step's.
Without it, numbers that are small beside others of their message are rounded
to the same side step after step, and that adds up. Reference: Karimireddy et
al., "Error feedback fixes SignSGD and other gradient compression schemes",
2019.
"""

import collections
import dataclasses
import sys
import threading
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import tf_compat
from tf_cdops.fabric import base

_MOST = 64  # Batches; a long run may have ever new shapes.
_ATTRIBUTE = "_tf_cdops_feedback"  # Of a graph.
_Variables = dict[Any, tf.Variable]


class Feedback:
  """What was lost, one variable for each message of each batch.

  Each is on the device that sends the message, so they aren't mirrored. They
  are made once for each batch of tensors that one function reduces, whatever
  function that is, and once for each batch in eager code; a new process or a
  new connection begins with zeros, which does no harm. So a function that is
  traced again goes on with what it had, and two that reduce batches of the same
  sizes share theirs. A v1 graph has its own, among its local variables.
  """

  def __init__(self) -> None:
    self._batches: dict[Any, _Variables] = {}
    self._overflows: _Variables = {}
    self._lock = threading.Lock()

  def __reduce__(self) -> Any:  # A copy, pickled or not, begins anew.
    return Feedback, ()

  def of_batch(self, *batch: Any) -> "BatchFeedback":
    """Returns that of a batch, which the arguments tell from others.

    Of the same ones that a graph has several times, each has its own.
    """
    key = batch, tf_compat.connection_number()
    with self._lock:
      if tf.executing_eagerly():
        return BatchFeedback(self._lost(key), self._overflows, self._lock)
      there = self._in(tf.compat.v1.get_default_graph())
      key = key, there.counts[key]
      there.counts[key[0]] += 1
      if _are_functions():
        lost, overflows = self._lost(key), self._overflows
        there.kept += [lost, overflows]  # While the function lives.
      else:
        lost, overflows = {}, there.overflows
      return BatchFeedback(lost, overflows, self._lock)

  def overflows(self) -> list[tf.Variable]:
    """Returns, of each device, how many numbers were too large so far."""
    with self._lock:
      there = (self._overflows if _are_functions() else self._in(
          tf.compat.v1.get_default_graph()).overflows)
      number = tf_compat.connection_number()
      return [counted for (_, connection), counted in there.items()
              if connection == number]

  def _lost(self, key: Any) -> _Variables:
    lost = self._batches.pop(key, {})
    self._batches[key] = lost
    for oldest in list(self._batches)[:-_MOST]:
      del self._batches[oldest]
    return lost

  def _in(self, graph: Any) -> "_InGraph":
    """Returns what belongs to a graph, and goes with it."""
    states = getattr(graph, _ATTRIBUTE, None)
    if states is None:
      states = dict[Feedback, _InGraph]()
      setattr(graph, _ATTRIBUTE, states)
    found: _InGraph = states.setdefault(self, _InGraph())
    return found


@dataclasses.dataclass
class _InGraph:
  """What a graph has of one object's feedback."""

  counts: collections.Counter[Any] = dataclasses.field(
      default_factory=collections.Counter)
  kept: list[_Variables] = dataclasses.field(default_factory=list)
  overflows: _Variables = dataclasses.field(default_factory=dict)


class BatchFeedback:
  """That of one batch, message by message, in the order they are made."""

  def __init__(self, lost: _Variables, overflows: _Variables,
               lock: threading.Lock):
    self._lost, self._overflows, self._count = lost, overflows, 0
    self._lock = lock
    self._too_large: dict[str, list[tf.Tensor]] = {}
    self._codec: base.Codec | None = None

  def encode(self, vector: tf.Tensor, codec: base.Codec,
             place: str) -> tf.Tensor:
    """Returns a vector's message, with what was lost the last time."""
    self._count += 1
    lost = None
    if codec.has_feedback and vector.shape.is_fully_defined():
      lost = self._made_once(self._lost, (self._count, place), place,
                             vector.shape, vector.dtype)
      vector = vector + lost
    if codec.overflows is not None:
      self._codec = codec
      self._too_large.setdefault(place, []).append(codec.overflows(vector))
    message = codec.encode(vector)
    if lost is None:
      return message
    kept = lost.assign(_finite(vector - codec.decode(message, vector)))
    if _are_functions():
      return message  # A function makes all assignments there are.
    with tf.control_dependencies([kept]):
      return tf.identity(message)

  def finished(self, results: Sequence[Sequence[tf.Tensor]],
               places: Sequence[str]) -> list[list[tf.Tensor]]:
    """Counts what was too large; returns the results, which a v1 graph counts.

    Args:
      results: of each value, one per device.
      places: the devices.
    """
    done: dict[str, list[Any]] = {place: [] for place in places}
    for place, numbers in self._too_large.items():
      with tf.device(place):
        counted = self._counted(tf.math.add_n(numbers), place)
      done.get(place, done[places[0]]).append(counted)  # Hosts have no results.
    if not self._too_large or _are_functions():
      return [list(values) for values in results]
    return [[_after(done[place], value, place)
             for value, place in zip(values, places, strict=True)]
            for values in results]

  def _counted(self, number: tf.Tensor, place: str) -> Any:
    """Adds to a device's count, and says so there the first time."""
    counted = self._made_once(
        self._overflows, (place, tf_compat.connection_number()), place, (),
        tf.int64)
    is_first = tf.equal(counted, 0) & (number > 0)
    codec = self._codec
    assert codec is not None
    told = tf.cond(is_first, lambda: _told(number, codec, place),
                   lambda: False)
    with tf.control_dependencies([told]):
      return counted.assign_add(number)

  def _made_once(self, there: _Variables, key: Any, place: str, shape: Any,
                 dtype: tf.DType) -> tf.Variable:
    """Returns a variable of one device, zero at first."""
    with self._lock:
      if key not in there:
        with tf.init_scope(), tf.device(place):
          there[key] = tf_compat.unmirrored_variable(tf.zeros(shape, dtype))
      return there[key]


def _finite(rest: tf.Tensor) -> tf.Tensor:
  """Returns what was lost, or nothing if some of it isn't finite.

  What isn't finite stays so by itself, and mustn't come back. To tell by the
  sum is cheapest, and to choose by a scalar copies nothing.
  """
  return tf.raw_ops.Select(
      condition=tf.math.is_finite(tf.reduce_sum(rest)), x=rest,
      y=tf.zeros_like(rest))


def _after(done: Sequence[Any], value: tf.Tensor, place: str) -> tf.Tensor:
  with tf.device(place), tf.control_dependencies(done):
    return tf.identity(value)


def _told(number: tf.Tensor, codec: base.Codec, place: str) -> tf.Tensor:
  with tf.control_dependencies([tf.print(
      "tf_cdops:", number, f"numbers were too large for the wire "
      f"{codec.name}, and were sent as its largest ({place}). This is said "
      "once; wire_overflows() counts. Scale the loss down, or use bfloat16.",
      output_stream=sys.stderr)]):
    return tf.constant(True)


def _are_functions() -> bool:
  """Whether graphs are those of tf.function, and not TensorFlow 1's."""
  there: bool = tf.compat.v1.executing_eagerly_outside_functions()
  return there
