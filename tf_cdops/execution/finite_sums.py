"""Sums of what is finite, instead of sums that aren't."""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.execution import sparse

# Vectors of up to so many elements are joined before they are probed.
_SMALL = 1 << 14

_Tensors = list[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Total:
  """How to put together what all replicas have, on the device in force.

  Attributes:
    add: (vectors of one length, one per replica of this program) -> the sum of
      those of all replicas.
    join: (vectors likewise, of any lengths) -> those of all replicas, joined.
  """

  add: Callable[[_Tensors], tf.Tensor] = tf.math.add_n
  join: Callable[[_Tensors], tf.Tensor] = lambda vectors: tf.concat(vectors, 0)


def can_be_infinite(dtype: tf.DType) -> bool:
  """Whether numbers of this type can be infinite, or none."""
  return bool(dtype.is_floating or dtype.is_complex)


def dense_part(value: Any) -> Any:
  """Returns a tensor or variable as it is; of IndexedSlices the values."""
  return value.values if sparse.is_sparse(value) else value


def with_part(value: Any, part: tf.Tensor) -> Any:
  """Returns a value that has another dense part of the same shape."""
  part.set_shape(dense_part(value).shape)
  return tf.IndexedSlices(part, value.indices, value.dense_shape
                          ) if sparse.is_sparse(value) else part


class Choice:
  """One of two functions, chosen when it is run.

  In a graph that is one op of the device in force. With tf.cond, every input,
  every result and every op of what isn't chosen would cost time. Both are
  traced once for tensors that are alike.
  """

  def __init__(self, then: Callable[..., _Tensors],
               otherwise: Callable[..., _Tensors]):
    self._either = then, otherwise
    self._functions = [tf.function(one, autograph=False)
                       for one in self._either]

  def __call__(self, wanted: tf.Tensor, inputs: _Tensors) -> _Tensors:
    """Returns what the first makes of inputs if `wanted`, else the second."""
    if tf.executing_eagerly():
      return self._either[0 if wanted else 1](*inputs)
    specs = [tf.TensorSpec(one.shape, one.dtype) for one in inputs]
    then, otherwise = (function.get_concrete_function(*specs)
                       for function in self._functions)
    results: _Tensors = tf.raw_ops.StatelessIf(
        cond=wanted, input=inputs, Tout=[one.dtype for one in then.outputs],
        then_branch=then, else_branch=otherwise)
    for result, one, other in zip(results, then.outputs, otherwise.outputs,
                                  strict=True):
      result.set_shape(one.shape.most_specific_compatible_shape(other.shape))
    return results


def probes(parts: Sequence[tf.Tensor]) -> _Tensors:
  """Returns float32s that are all finite only if all elements are."""
  vectors = collections.defaultdict(list)
  others = []
  for part in parts:
    if part.shape.rank == 1 and (part.shape[0] or _SMALL) < _SMALL:
      vectors[part.dtype].append(part)
    else:
      others.append(part)
  others += [same[0] if len(same) == 1 else tf.concat(same, 0)
             for same in vectors.values()]
  return [tf.cast(_probe(part), tf.float32) for part in others]


def _probe(part: tf.Tensor) -> tf.Tensor:
  if part.dtype.is_complex:
    part = tf.math.real(part) + tf.math.imag(part)
  # In 16 bits a sum soon overflows, and a mean doesn't; but one of nothing is
  # no number.
  return (tf.reduce_mean if part.dtype.size == 2 and part.shape.num_elements()
          else tf.reduce_sum)(part)


def is_finite(part: tf.Tensor) -> tf.Tensor:
  """Returns of each element whether it is finite; complex ones may be, too."""
  if part.dtype.is_complex:
    return (tf.math.is_finite(tf.math.real(part))
            & tf.math.is_finite(tf.math.imag(part)))
  return tf.math.is_finite(part)


def count(part: tf.Tensor) -> tf.Tensor:
  """Returns how many elements aren't finite."""
  return tf.math.count_nonzero(~is_finite(part), dtype=tf.int32)


class Sums:
  """The sums of a batch, made once more without some replicas' tensors.

  What a replica brings is one vector for each dtype, of dense tensors, and one
  for each sparse tensor. Sums travel as one vector for each dtype.
  """

  def __init__(self, batch: Sequence[Any]):
    """Initializes.

    Args:
      batch: of each tensor, its result on some device.
    """
    self._dense: dict[tf.DType, list[int]] = {}
    self._sparse: dict[tf.DType, list[int]] = {}
    for i, result in enumerate(batch):
      there = self._sparse if sparse.is_sparse(result) else self._dense
      there.setdefault(result.dtype, []).append(i)
    self._dtypes = list(dict.fromkeys([*self._dense, *self._sparse]))
    self._count = len(batch)

  def kept(self, *parts: tf.Tensor) -> _Tensors:
    """Returns a replica's counts, and what it brings that is finite."""
    counts = [count(part) for part in parts]
    zeroed = [tf.where(number > 0, tf.zeros_like(part), part)
              for part, number in zip(parts, counts, strict=True)]
    return [tf.stack(counts),
            *(_flat([zeroed[i] for i in which])
              for which in self._dense.values()),
            *(_flat([zeroed[i]]) for which in self._sparse.values()
              for i in which)]

  def nothing_kept(self, *parts: tf.Tensor) -> _Tensors:
    """Returns what stands for that while nobody needs it."""
    del parts
    return [tf.zeros([self._count], tf.int32),
            *(tf.zeros([0], dtype) for dtype in self._dense),
            *(tf.zeros([0], dtype) for dtype, which in self._sparse.items()
              for _ in which)]

  def total(self, kept: Sequence[_Tensors], wrong: tf.Tensor, reduce_op: Any,
            total: Total) -> _Tensors:
    """Returns a factor for each tensor, and vectors that want multiplying.

    Args:
      kept: what the replicas of this program bring, without their counts.
      wrong: for each of all replicas, which tensors it doesn't bring.
      reduce_op: tf.distribute.ReduceOp.SUM or MEAN.
      total: puts it together.
    """
    left = tf.reduce_sum(tf.cast(~wrong, tf.float64), 0)
    scale = (1.0 if reduce_op == tf.distribute.ReduceOp.MEAN
             else tf.cast(tf.shape(wrong)[0], tf.float64))
    columns = map(list, zip(*kept, strict=True))
    pieces: dict[tf.DType, _Tensors] = {
        dtype: [total.add(next(columns))] for dtype in self._dense}
    for dtype, which in self._sparse.items():
      pieces.setdefault(dtype, []).extend(
          total.join(next(columns)) for _ in which)
    return [scale / tf.maximum(left, 1.0),
            *(_flat(pieces[dtype]) for dtype in self._dtypes)]

  def no_total(self) -> _Tensors:
    """Returns what stands for that while nobody needs it."""
    return [tf.zeros([self._count], tf.float64),
            *(tf.zeros([0], dtype) for dtype in self._dtypes)]

  def cut(self, *tensors: tf.Tensor) -> _Tensors:
    """Returns the sums in their shapes.

    Args:
      *tensors: the results that they replace, and what `total` returned.
    """
    parts, (factors, *vectors) = (tensors[:self._count],
                                  tensors[self._count:])
    each = tf.unstack(factors, self._count)
    found: dict[int, tf.Tensor] = {}
    for dtype, vector in zip(self._dtypes, vectors, strict=True):
      order = self._dense.get(dtype, []) + self._sparse.get(dtype, [])
      sizes = tf.stack([tf.size(parts[i]) for i in order])
      for i, cut in zip(order, tf.split(vector, sizes, num=len(order)),
                        strict=True):
        shape = parts[i].shape
        found[i] = tf.reshape(
            cut * tf.cast(each[i], dtype),
            shape if shape.is_fully_defined() else tf.shape(parts[i]))
    return [found[i] for i in range(self._count)]

  def not_cut(self, *tensors: tf.Tensor) -> _Tensors:
    """Returns the results as they are."""
    return list(tensors[:self._count])


def _flat(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """Joins all elements."""
  return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
