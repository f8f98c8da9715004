"""Which devices there are, and which one a value is on."""

import dataclasses
from typing import Any

import tensorflow as tf

from tf_cdops.base import device_names
from tf_cdops.base import errors
from tf_cdops.base import tf_compat


def check_present(name: str, argument: str) -> None:
  """Raises a DeviceError if TensorFlow has no device `name`.

  A v1 graph is left alone: only its session knows its devices. So is a
  process whose devices aren't fixed yet, since asking would fix them.
  """
  fixed = (tf.compat.v1.executing_eagerly_outside_functions()
           and tf_compat.tensorflow_has_started())
  available = ([device.name for device in tf.config.list_logical_devices()]
               if fixed else [])
  try:
    wanted = device_names.parse(name, argument)
  except errors.DeviceError as error:
    there = f" There are {', '.join(available)}." if available else ""
    raise errors.DeviceError(f"{error}{there}") from None
  if not fixed:
    return
  local = device_names.DeviceName(job="localhost", replica=0, task=0)
  if not any(wanted.admits(device_names.parse(there).filled(local))
             for there in available):
    raise errors.DeviceError(
        f"`{argument}` ({name!r}) must be a device of this program; choose one "
        f"of {', '.join(available)}.")


def device_of(value: Any) -> str:
  """Returns the device of a tensor, variable or IndexedSlices, maybe ""."""
  return value.device or ""


def host_of(name: str) -> str:
  """Returns the CPU beside a device; nothing is known of a nameless one."""
  return name and str(dataclasses.replace(
      device_names.parse(name), type="CPU", index=0))


def devices_of(values: tuple[Any, ...]) -> tuple[str, ...]:
  """Returns the device of each replica's value.

  Inside a tf.function a distributed batch comes with no device at all. Then
  the current strategy's devices are meant, if it has as many. Otherwise the
  names stay empty, and TensorFlow places the work.
  """
  names = tuple(device_of(value) for value in values)
  if all(names):
    return names
  strategy_devices = of_strategy()
  if len(strategy_devices) != len(names):
    return names
  return tuple(name or fallback for name, fallback
               in zip(names, strategy_devices, strict=True))


def of_strategy() -> tuple[str, ...]:
  """Returns the devices of the strategy in force, if there is one."""
  if not tf.distribute.has_strategy():
    return ()
  return tuple(tf.distribute.get_strategy().extended.worker_devices)


def has_virtual_gpus() -> bool:
  """Whether some logical GPUs are parts of one visible physical GPU."""
  return (len(tf.config.list_logical_devices("GPU"))
          > len(tf.config.get_visible_devices("GPU")))
