"""Sixteen logical CPU devices for every test, configured in this one place.

TensorFlow takes the number once a process, and pytest runs all test files in
one: so tests import this first and use a subset.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import tf_cdops  # noqa: F401  # Fails here, early, if it can't be imported.
from tf_cdops.base import tf_compat

COUNT = 16

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * COUNT)


def names(count: int) -> list[str]:
  """Returns the full names of the first `count` devices."""
  return [f"/job:localhost/replica:0/task:0/device:CPU:{i}"
          for i in range(count)]


def per_replica(values: Sequence[Any]) -> Any:
  """Returns a PerReplica of `values`, value i as a tensor on device i."""
  placed = []
  for value, name in zip(values, names(len(values)), strict=True):
    with tf.device(name):
      placed.append(value if isinstance(value, tf.IndexedSlices)
                    else tf.identity(value))
  return tf_compat.PerReplica(tuple(placed))
