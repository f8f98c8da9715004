"""All-reduces odd but finite numbers for many steps: nothing may be said.

    python tests/guard_clean.py STEPS [FIRST]
"""

import functools
import sys

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.base import tf_compat

_REPLICAS = 3
_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def numbers(seed: tf.Tensor, dtype: tf.DType, length: int) -> tf.Tensor:
  """Returns large and tiny ones, zeros and denormal ones, at random."""
  kind = tf.random.stateless_uniform([length], tf.stack([seed, 0]), 0, 6,
                                     tf.int32)
  part = tf.random.stateless_uniform([length], tf.stack([seed, 1]), -1.0, 1.0,
                                     tf.float64)
  most = np.float64(dtype.max) / (_REPLICAS + 1)  # Sums are finite, too.
  least = np.float64(np.finfo(np.float32).smallest_subnormal)
  choices = tf.stack([part, part * most, most * tf.sign(part), part * 0.0,
                      part * 1e-30, tf.sign(part) * least], axis=1)
  return tf.cast(tf.gather(choices, kind, axis=1, batch_dims=1), dtype)


def batch(step: tf.Tensor) -> list:
  """Returns dense, empty and sparse values, one per replica each."""
  values = []
  for number, (dtype, length) in enumerate(
      (dtype, length) for dtype in _DTYPES for length in (0, 1, 37)):
    placed = []
    for replica in range(_REPLICAS):
      with tf.device(f"CPU:{replica}"):
        placed.append(numbers(step * 1000 + number * 10 + replica, dtype,
                              length))
    values.append(tf_compat.PerReplica(tuple(placed)))
  slices = []
  for replica in range(_REPLICAS):
    with tf.device(f"CPU:{replica}"):
      rows = (step + replica) % 3  # None at times.
      slices.append(tf.IndexedSlices(
          numbers(step, tf.float32, 8)[:, None][:rows], tf.range(rows),
          tf.constant([9, 1])))
  return [*values, tf_compat.PerReplica(tuple(slices))]


def reduced(ops, step):
  values = batch(step)
  return [part for result in ops.batch_reduce(
      tf.distribute.ReduceOp.SUM, [(value, value) for value in values])
          for part in (tf.convert_to_tensor(one) for one in result.values)]


def main(steps: str, first: str = "0") -> None:
  """Runs so many steps; exits with 1 if a result isn't what it would be."""
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * _REPLICAS)
  functions = [tf.function(functools.partial(
      reduced, tf_cdops.MultiWorkerAllReduce(
          all_reduce_spec="auto", on_nonfinite=mode)), autograph=False)
               for mode in (None, "raise", "drop")]
  for step in range(int(first), int(first) + int(steps)):
    plain, *guarded = ([part.numpy().tobytes() for part in function(
        tf.constant(step))] for function in functions)
    if guarded != [plain, plain]:
      sys.exit(f"step {step} has other results")


if __name__ == "__main__":
  main(*sys.argv[1:])
