"""The base of the package's classes: every call is checked first."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tensorflow_1
from tf_cdops.base import tf_compat
from tf_cdops.execution import executor
from tf_cdops.execution import inputs


def _todays_keywords(method: Callable[..., Any]) -> Callable[..., Any]:
  """Makes a method raise an InputError for a keyword that is gone."""

  @functools.wraps(method)
  def call(*args: Any, **kwargs: Any) -> Any:
    for old in tensorflow_1.KEYWORDS.keys() & kwargs.keys():
      raise errors.InputError(
          f"`{old}` ({kwargs[old]!r}) is no argument of "
          f"`{method.__name__}`; write {tensorflow_1.KEYWORDS[old]}=.")
    return method(*args, **kwargs)

  return call


# AutoGraph need not rewrite this package: tracing is quicker without.
_as_it_is = tf.autograph.experimental.do_not_convert


def _given(options: Any) -> Any:
  return options or tf.distribute.experimental.CommunicationOptions()


class CheckedCrossDeviceOps(tf.distribute.CrossDeviceOps):
  """Checks what callers hand over, then does what tf.distribute documents.

  A subclass overrides `reduce_implementation` and, where a batch can be done
  better than one by one, `batch_reduce_implementation`; both get distributed
  values and destinations that are already checked.
  """

  # Whether those two get what needs no sum, too, since there is one replica.
  _looks_at_single_values = False

  @_as_it_is
  @_todays_keywords
  def reduce(self, reduce_op: Any, per_replica_value: Any, destinations: Any,
             options: Any = None) -> Any:
    """See `tf.distribute.CrossDeviceOps.reduce`."""
    inputs.check_reduce_op(reduce_op)
    inputs.check_destinations(destinations)
    value = inputs.value_to_reduce(per_replica_value)
    if self._looks_at_single_values:
      return self.reduce_implementation(reduce_op, value, destinations,
                                        _given(options))
    return super().reduce(reduce_op, value, destinations, options)

  @_as_it_is
  @_todays_keywords
  def batch_reduce(self, reduce_op: Any, value_destination_pairs: Any,
                   options: Any = None) -> list[Any]:
    """See `tf.distribute.CrossDeviceOps.batch_reduce`; an empty batch is []."""
    inputs.check_reduce_op(reduce_op)
    pairs = inputs.pairs_to_reduce(value_destination_pairs)
    if not pairs:
      return []
    if len(pairs[0][0].values) > 1 or self._looks_at_single_values:
      # The base looks for single values, comparing every device to do so.
      return self.batch_reduce_implementation(reduce_op, pairs,
                                              _given(options))
    return super().batch_reduce(reduce_op, pairs, options)

  @_as_it_is
  def broadcast(self, tensor: Any, destinations: Any) -> Any:
    """See `tf.distribute.CrossDeviceOps.broadcast`."""
    inputs.check_destinations(destinations)
    value = inputs.value_to_broadcast(tensor)
    return super().broadcast(value, destinations)

  @_as_it_is
  def _gather(self, per_replica_value: Any, destinations: Any, axis: Any,
              options: Any = None) -> Any:
    """What strategy.gather calls; checks as `reduce` does."""
    inputs.check_destinations(destinations)
    value = inputs.value_to_gather(per_replica_value, axis)
    return super()._gather(value, destinations, axis, options)

  def batch_reduce_implementation(self, reduce_op: Any,
                                  value_destination_pairs: Any,
                                  options: Any) -> list[Any]:
    return [self.reduce_implementation(reduce_op, value, destinations, options)
            for value, destinations in value_destination_pairs]

  def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
    devices = inputs.destination_devices(destinations)
    return tf_compat.mirrored(executor.copy_to(devices, tensor))

  def _gather_implementation(self, per_replica_value: Any, destinations: Any,
                             axis: Any, options: Any) -> Any:
    del options  # A gather is one concat; there is nothing to choose.
    devices = inputs.destination_devices(destinations)
    joined = executor.concat_on(self._home(devices),
                                per_replica_value.values, axis)
    return tf_compat.mirrored(executor.copy_to(devices, joined))

  def _home(self, devices: tuple[str, ...]) -> str:
    """Returns which device does what is done on one device."""
    return devices[0]
