"""ReductionToOneDevice: copy everything to one device, sum, copy back."""

from typing import Any

from absl import logging
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.cross_device_ops import base
from tf_cdops.execution import devices as devices_lib
from tf_cdops.execution import executor
from tf_cdops.execution import inputs


class ReductionToOneDevice(base.CheckedCrossDeviceOps):
  """Sums on one device, then copies the result to the destinations.

  It works everywhere, which makes it the class to compare others with. Every
  value crosses to one device, so that device's links are the limit: for p
  replicas of n bytes, (p-1)n in and (p-1)n out.

  >>> strategy = tf.distribute.MirroredStrategy(
  ...     ["CPU:0", "CPU:1"],
  ...     cross_device_ops=tf_cdops.ReductionToOneDevice())
  >>> def step():
  ...   context = tf.distribute.get_replica_context()
  ...   x = tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
  ...   return context.all_reduce(tf.distribute.ReduceOp.SUM, x)
  >>> [float(x) for x in strategy.run(tf.function(step)).values]
  [3.0, 3.0]
  """

  def __init__(self, reduce_to_device: str | None = None,
               accumulation_fn: executor.AccumulationFn | None = None):
    """Initializes with a device to reduce to and a way to accumulate.

    Args:
      reduce_to_device: the intermediate device to reduce to. If None, the
        first device of each call's `destinations`.
      accumulation_fn: sums a list of tensors, one per replica. If None,
        `tf.math.add_n`. tf.IndexedSlices are joined and never reach it.

    Raises:
      ValueError: if `reduce_to_device` isn't the name of a device of this
        program, or `accumulation_fn` isn't callable.
    """
    if accumulation_fn is not None and not callable(accumulation_fn):
      raise errors.InputError(
          f"`accumulation_fn` ({accumulation_fn!r}) must be a function of a "
          "list of tensors, for example tf.math.add_n.")
    if reduce_to_device is not None:
      devices_lib.check_present(reduce_to_device, "reduce_to_device")
    self.reduce_to_device = reduce_to_device
    self.accumulation_fn = accumulation_fn or tf.math.add_n
    super().__init__()

  def __repr__(self) -> str:
    accumulation = ("" if self.accumulation_fn is tf.math.add_n
                    else f", accumulation_fn={self.accumulation_fn!r}")
    return (f"ReductionToOneDevice(reduce_to_device={self.reduce_to_device!r}"
            f"{accumulation})")

  def reduce_implementation(self, reduce_op: Any, per_replica_value: Any,
                            destinations: Any, options: Any) -> Any:
    del options  # There is one way to do it: nothing to choose.
    devices = inputs.destination_devices(destinations)
    home = self._home(devices)
    values = per_replica_value.values
    result = executor.sum_on(home, values, self.accumulation_fn)
    if reduce_op == tf.distribute.ReduceOp.MEAN:
      result = executor.divide_on(home, result, len(values))
    return tf_compat.mirrored(executor.copy_to(devices, result))

  def _home(self, devices: tuple[str, ...]) -> str:
    """Returns the device that sums, having said so once."""
    home = self.reduce_to_device or devices[0]
    if self.reduce_to_device:
      # The constructor may have come before TensorFlow fixed its devices.
      devices_lib.check_present(home, "reduce_to_device")
    logging.log_first_n(
        logging.INFO, "ReductionToOneDevice: sums on %s, then copies to %s.", 1,
        home or "a device of TensorFlow's choice", ", ".join(devices))
    return home
