"""Compares an all-reduce with a plain sum on one device."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cdops import planning
from tf_cdops import topology as topology_lib


def verified(plan: planning.Plan, replicas: Sequence[Sequence[tf.Tensor]],
             results: Sequence[Sequence[tf.Tensor]],
             topology: topology_lib.Topology,
             reduce_op: Any) -> list[list[tf.Tensor]]:
  """Returns the results, each behind the check that it is right.

  Args:
    plan: what was followed; an error names the algorithm.
    replicas: for each device, the tensors that were reduced.
    results: for each device, what came out.
    topology: the devices.
    reduce_op: what was asked for.

  Returns:
    The results; computing one raises tf.errors.InvalidArgumentError if any
    device's differs from the plain sum by more than rounding.
  """
  checked: list[list[Any]] = [list(tensors) for tensors in results]
  for bucket in plan.buckets:
    for i in bucket.tensors:
      values = [tensors[i] for tensors in replicas]
      with tf.device(topology.hosts[0]):
        passed = [
            _assert_near(result[i], values, reduce_op,
                         f"tf_cdops self-check: tensor {i} on {name}, reduced "
                         f"by {bucket.algorithm!r}, isn't the sum")
            for result, name in zip(results, topology.devices, strict=True)]
      for replica, name in enumerate(topology.devices):
        with tf.device(name), tf.control_dependencies(
            [op for op in passed if op is not None]):
          checked[replica][i] = tf.identity(results[replica][i])
  return checked


def _assert_near(result: tf.Tensor, values: Sequence[tf.Tensor],
                 reduce_op: Any, message: str) -> Any:
  """Asserts that `result` is the sum, or mean, but for rounding."""
  terms = values[0].dtype
  expected = tf.math.add_n(list(values))
  mean = reduce_op == tf.distribute.ReduceOp.MEAN
  if mean:
    expected = expected / len(values)
  if not (terms.is_floating or terms.is_complex):
    near = tf.equal(result, expected)
  else:
    # Sums of p terms in two orders differ by at most (p-1) roundings of their
    # size; a division adds one.
    real = terms.real_dtype
    size = tf.math.add_n([tf.abs(value) for value in values])
    bound = len(values) * _epsilon(real) / (len(values) if mean else 1)
    error = tf.abs(result - expected)
    near = (error <= tf.cast(bound, real) * size) | ~_finite(expected)
  return tf.debugging.Assert(tf.reduce_all(near), [message])


def _finite(value: tf.Tensor) -> tf.Tensor:
  return tf.math.is_finite(tf.abs(value))


def _epsilon(dtype: tf.DType) -> float:
  """The spacing of numbers just above 1."""
  return {tf.bfloat16: 2.0**-7, tf.float16: 2.0**-10,
          tf.float32: 2.0**-23}.get(dtype, 2.0**-52)
