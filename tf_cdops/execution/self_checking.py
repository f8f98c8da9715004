"""Compares what was reduced with a plain sum on one device.

A sum is right if it differs from the plain one by no more than rounding. Where
a term is infinite or no number, the results must be so too. Where finite terms
overflow, one order may give a number and another none: that alone is let pass.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.execution import devices
from tf_cdops.execution import executor
from tf_cdops.execution import sparse


def verified(values: Sequence[Any], results: Sequence[Any], reduce_op: Any,
             what: str, how: str) -> list[Any]:
  """Returns results behind the check that each is right.

  Args:
    values: what was reduced, one per replica: tensors or IndexedSlices.
    results: what came of it, one per device.
    reduce_op: what was asked for.
    what: what an error calls the value.
    how: what it says of the way it was reduced.

  Returns:
    The results; computing one raises tf.errors.InvalidArgumentError if any of
    them differs from the plain sum.
  """
  names = [devices.device_of(result) for result in results]
  with tf.device(devices.host_of(names[0])):
    plain = _plain_sum(
        [value if sparse.is_sparse(value) else tf.convert_to_tensor(value)
         for value in values], reduce_op)
    passed = [
        tf.debugging.Assert(tf.reduce_all(plain.is_near(result)), [
            f"tf_cdops self-check: {what} on {name}, {how}, isn't the sum"])
        for result, name in zip(results, names, strict=True)]
  with tf.control_dependencies([op for op in passed if op is not None]):
    return [executor.copy_to([name], result)[0]
            for result, name in zip(results, names, strict=True)]


@dataclasses.dataclass(frozen=True)
class _PlainSum:
  """A sum that was made once, in one place, and how far another may be off.

  Attributes:
    total: the sum or mean.
    allowed: how far off each element may be; None if not at all.
    overflows: where only an overflow of finite terms can be.
  """

  total: tf.Tensor
  allowed: tf.Tensor | None = None
  overflows: tf.Tensor | None = None

  def is_near(self, result: Any) -> tf.Tensor:
    """Returns, for each element, whether it is right."""
    if self.allowed is None:
      return tf.equal(result, self.total)
    result, total = _reals(result), _reals(self.total)
    same = tf.equal(result, total) | (
        tf.math.is_nan(result) & tf.math.is_nan(total))
    return same | (tf.abs(result - total) <= self.allowed) | self.overflows


@dataclasses.dataclass(frozen=True)
class _PlainSlices:
  """The same of IndexedSlices, whose rows of one index are added up."""

  slices: tf.IndexedSlices
  divisor: int

  def is_near(self, result: Any) -> tf.Tensor:
    """Returns, for each element of each row, whether it is right."""
    mine, result = self.slices.values, sparse.add_slices([result])
    rows, position = tf.unique(tf.concat(
        [tf.cast(s.indices, tf.int64) for s in (self.slices, result)], 0))
    own, other = tf.split(position, [tf.shape(mine)[0], -1])
    add_up = lambda values, at: tf.math.unsorted_segment_sum(
        values, at, tf.size(rows))
    total = add_up(_wide(mine), own)
    if self.divisor > 1:
      total = total / self.divisor
    found = add_up(_wide(result.values), other)
    if not _rounds(mine.dtype):
      return tf.equal(found, total)
    terms = _reals(_wide(mine))
    most = tf.reduce_max(tf.math.bincount(own)) + 2  # Terms of one row.
    plain = _rounded(
        total, add_up(tf.abs(terms), own) / self.divisor,
        add_up(_count(~tf.math.is_finite(terms)), own) > 0,
        tf.cast(most, terms.dtype) * _epsilon(mine.dtype.real_dtype))
    return plain.is_near(found)


def _plain_sum(values: Sequence[Any],
               reduce_op: Any) -> "_PlainSum | _PlainSlices":
  divisor = len(values) if reduce_op == tf.distribute.ReduceOp.MEAN else 1
  if any(sparse.is_sparse(value) for value in values):
    return _PlainSlices(sparse.add_slices(values), divisor)
  total = tf.math.add_n(list(values))
  if divisor > 1:
    total = total / divisor
  if not _rounds(values[0].dtype):
    return _PlainSum(total)
  terms = [_reals(value) for value in values]
  size = tf.math.add_n([tf.abs(term) for term in terms])
  odd = tf.math.add_n([_count(~tf.math.is_finite(term)) for term in terms]) > 0
  # Sums of p terms in two orders differ by at most p-1 roundings of their
  # size; a division adds one, and one of complex numbers two more.
  return _rounded(total, size / divisor, odd, tf.cast(
      (len(values) + 2) * _epsilon(values[0].dtype.real_dtype), size.dtype))


def _rounded(total: tf.Tensor, size: tf.Tensor, odd: tf.Tensor,
             epsilons: tf.Tensor) -> _PlainSum:
  """Returns a sum whose terms' sizes add up to `size`, `odd` ones among them.

  Args:
    total: the sum or mean.
    size: the sum, or mean, of the terms' absolute values.
    odd: where some term isn't finite.
    epsilons: the error allowed, as a part of the size.
  """
  finite = tf.math.is_finite(size)
  overflows = ~finite & ~odd
  if total.dtype.is_complex:  # A division mixes real and imaginary part.
    overflows = tf.reduce_any(overflows, -1, keepdims=True)
  return _PlainSum(
      total, tf.where(finite, epsilons * size, tf.zeros_like(size)), overflows)


def _rounds(dtype: tf.DType) -> bool:
  return dtype.is_floating or dtype.is_complex


def _reals(value: tf.Tensor) -> tf.Tensor:
  """Returns complex numbers as pairs of reals."""
  if not value.dtype.is_complex:
    return value
  return tf.stack([tf.math.real(value), tf.math.imag(value)], -1)


def _wide(value: tf.Tensor) -> tf.Tensor:
  """Returns numbers in a type that adds many of them up well."""
  if _rounds(value.dtype):
    return (tf.cast(value, tf.float32) if value.dtype.size == 2 else value)
  return tf.cast(value, tf.int64)


def _count(flags: tf.Tensor) -> tf.Tensor:
  return tf.cast(flags, tf.int32)


def _epsilon(dtype: tf.DType) -> float:
  """The spacing of numbers just above 1."""
  return {tf.bfloat16: 2.0**-7, tf.float16: 2.0**-10,
          tf.float32: 2.0**-23}.get(dtype, 2.0**-52)
