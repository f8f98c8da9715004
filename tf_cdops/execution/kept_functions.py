"""Emits into a graph; in eager code, as functions that are made once.

Collective ops wait for each other, so eager ones, which run one after another,
would do so for ever.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import tf_compat
from tf_cdops.execution import executor

_MOST = 256  # Each is for tensors of some shapes.


class KeptFunctions:
  """The functions that eager code has needed so far, the latest of them."""

  def __init__(self, devices: Sequence[str],
               on_call: Callable[[], int] | None,
               on_arrival: Callable[..., None] | None = None):
    """Initializes.

    Args:
      devices: on which results are to be, one on each.
      on_call: is called whenever a function is that emits anything here.
      on_arrival: (tensors, alike) -> emits what tells that tensors have been
        computed, of which those in `alike` have one shape in all programs.
    """
    self._devices = tuple(devices)
    self._on_call, self._on_arrival = on_call, on_arrival
    self._functions: dict[Any, Callable[..., Any]] = {}
    self._lock = threading.Lock()  # Of several threads one at a time.

  def run(self, kind: Any, emit: Callable[[Any], Any], values: Any,
          alike: bool = False) -> Any:
    """Returns what `emit` makes of values: lists with one per device.

    Args:
      kind: tells this function from others of values that are alike.
      emit: emits ops.
      values: a structure of tensors and tf.IndexedSlices.
      alike: whether tensors must have the same shapes in all programs.
    """
    if not tf.executing_eagerly():
      self._note(values, alike)
      return emit(values)
    flat = tf.nest.flatten(values, expand_composites=True)
    # Of values it keeps what they are like, and not the values.
    like = tf.nest.map_structure(tf.type_spec_from_value, values)
    key = kind, str(like)
    with self._lock:
      function = self._functions.pop(key, None) or self._made(
          emit, like, alike)
      self._functions[key] = function
      for oldest in list(self._functions)[:-_MOST]:
        del self._functions[oldest]
      outputs = function(*flat)
    return self._placed(outputs)

  def _made(self, emit: Callable[[Any], Any], like: Any,
            alike: bool) -> Callable[..., Any]:

    def run(*flat: tf.Tensor) -> Any:
      values = tf.nest.pack_sequence_as(like, flat, expand_composites=True)
      self._note(values, alike)
      return emit(values)

    return tf.function(run, autograph=False).get_concrete_function(
        *tf.nest.flatten(like, expand_composites=True))

  def _note(self, values: Any, alike: bool) -> None:
    if self._on_call is not None:
      tf_compat.value_at_call(self._on_call, "tf_cdops/call")
    if self._on_arrival is not None:
      self._on_arrival(
          tf.nest.flatten(values, expand_composites=True),
          [value for value in tf.nest.flatten(values)
           if alike and isinstance(value, tf.Tensor)])

  def _placed(self, outputs: Any) -> Any:
    """Returns what a function put out, which says all to be on one device."""
    if len(self._devices) == 1:
      return outputs
    if isinstance(outputs[0], (list, tuple)):
      return [self._placed(each) for each in outputs]
    return [executor.copy_to([device], output)[0]
            for output, device in zip(outputs, self._devices, strict=True)]
