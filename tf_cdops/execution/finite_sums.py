"""Sums of what is finite, instead of sums that aren't."""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.execution import devices
from tf_cdops.execution import executor
from tf_cdops.execution import sparse

# Vectors of up to so many elements are joined before they are probed.
_SMALL = 1 << 14


@dataclasses.dataclass(frozen=True)
class Total:
  """How to add up what all replicas have; the result is where it is called.

  Attributes:
    add: (vectors, one per replica of this program) -> the sum of all replicas'.
    join: (slices, one per replica of this program) -> the rows of all.
  """

  add: Callable[[list[tf.Tensor]], tf.Tensor] = tf.math.add_n
  join: Callable[[list[Any]], tf.Tensor] = (
      lambda values: sparse.add_slices(values).values)


def can_be_infinite(dtype: tf.DType) -> bool:
  """Whether numbers of this type can be infinite, or none."""
  return bool(dtype.is_floating or dtype.is_complex)


def dense_part(value: Any) -> Any:
  """Returns a tensor or variable as it is; of IndexedSlices the values."""
  return value.values if sparse.is_sparse(value) else value


def probes(parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
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


def count(part: tf.Tensor) -> tf.Tensor:
  """Returns how many elements aren't finite."""
  if part.dtype.is_complex:
    finite = (tf.math.is_finite(tf.math.real(part))
              & tf.math.is_finite(tf.math.imag(part)))
  else:
    finite = tf.math.is_finite(part)
  return tf.math.count_nonzero(~finite, dtype=tf.int32)


class Sums:
  """The sums of a batch, to be made once more without some tensors.

  They travel as one vector for each dtype, and a factor for each tensor.
  """

  def __init__(self, total: Total, results: Sequence[Sequence[Any]],
               reduce_op: Any):
    self._total, self._results, self._op = total, results, reduce_op
    # For each dtype, the tensors in the order of its vector: dense ones first.
    self._order: dict[tf.DType, list[int]] = collections.defaultdict(list)
    for is_sparse in (False, True):
      for i, parts in enumerate(results):
        if sparse.is_sparse(parts[0]) == is_sparse:
          self._order[parts[0].dtype].append(i)

  def nothing(self) -> list[tf.Tensor]:
    """Returns what stands for sums that nobody needs."""
    count = len(self._results)
    return [tf.zeros([count], tf.float64), tf.zeros([count], tf.int32),
            *(tf.zeros([0], dtype) for dtype in self._order)]

  def without(self, batch: Sequence[Sequence[Any]],
              counts: Sequence[tf.Tensor], wrong: tf.Tensor,
              places: Sequence[str]) -> list[tf.Tensor]:
    """Returns factors, sizes, and sums without what isn't finite.

    Args:
      batch: for each tensor, what each replica here has.
      counts: for each replica here, how many elements of each tensor aren't.
      wrong: for all replicas and each tensor, whether it has such.
      places: the devices of the replicas here.
    """
    kept = [[_zero_if(counts[rank][i] > 0, value, place)
             for rank, (value, place) in enumerate(
                 zip(values, places, strict=True))]
            for i, values in enumerate(batch)]
    left = tf.reduce_sum(tf.cast(~wrong, tf.float64), 0)
    scale = (1.0 if self._op == tf.distribute.ReduceOp.MEAN
             else tf.cast(tf.shape(wrong)[0], tf.float64))
    sizes: dict[int, tf.Tensor] = {}
    vectors = []
    for order in self._order.values():
      dense = [i for i in order if not sparse.is_sparse(self._results[i][0])]
      flat = []
      for rank, place in enumerate(places if dense else ()):
        with tf.device(place):
          flat.append(_flat([kept[i][rank] for i in dense]))
      joined = [self._total.join(kept[i]) for i in order if i not in dense]
      vectors.append(_flat(
          ([self._total.add(flat)] if dense else []) + joined))
      sizes |= zip(order, map(tf.size, [kept[i][0] for i in dense] + joined),
                   strict=True)
    return [scale / tf.maximum(left, 1.0),
            tf.stack([sizes[i] for i in sorted(sizes)]), *vectors]

  def instead_if(self, wanted: tf.Tensor,
                 sums: Sequence[tf.Tensor]) -> list[list[Any]]:
    """Returns the results, or these sums if `wanted`; in a graph."""
    return self._on_each_device(lambda there, parts, own: tf.cond(
        own[0], lambda: self._cut(there, parts, own[1:]), lambda: parts),
                                [wanted, *sums])

  def instead(self, sums: Sequence[tf.Tensor]) -> list[list[Any]]:
    """Returns these sums in the form of the results."""
    return self._on_each_device(self._cut, sums)

  def _on_each_device(self, make: Callable[..., list[tf.Tensor]],
                      tensors: Sequence[tf.Tensor]) -> list[list[Any]]:
    """Makes results anew on each device that has some.

    One choice for all would have results go from one device to another.
    """
    results = [list(parts) for parts in self._results]
    by_device = collections.defaultdict(list)
    for i, parts in enumerate(results):
      for j, part in enumerate(parts):
        by_device[devices.device_of(part)].append((i, j))
    for device, there in by_device.items():
      parts = [dense_part(results[i][j]) for i, j in there]
      with tf.device(device):
        made = make([i for i, _ in there], parts,
                    [tf.identity(tensor) for tensor in tensors])
      for (i, j), part, known in zip(there, made, parts, strict=True):
        part.set_shape(known.shape)
        old = results[i][j]
        results[i][j] = tf.IndexedSlices(
            part, old.indices, old.dense_shape) if sparse.is_sparse(
                old) else part
    return results

  def _cut(self, there: Sequence[int], parts: Sequence[tf.Tensor],
           sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns those sums that are wanted here, in the shape of these parts."""
    factors, sizes, *vectors = sums
    found: dict[int, tf.Tensor] = {}
    for order, vector in zip(self._order.values(), vectors, strict=True):
      for i, cut in zip(order, tf.split(vector, tf.gather(sizes, order),
                                        num=len(order)), strict=True):
        found[i] = cut * tf.cast(factors[i], cut.dtype)
    return [tf.reshape(found[i], tf.shape(part))
            for i, part in zip(there, parts, strict=True)]


def _zero_if(wanted: tf.Tensor, value: Any, place: str) -> Any:
  """Returns a value, or zeros instead."""
  with tf.device(place):
    part = executor.as_tensor(dense_part(value), place)
    part = tf.where(wanted, tf.zeros_like(part), part)
    return tf.IndexedSlices(part, value.indices, value.dense_shape
                            ) if sparse.is_sparse(value) else part


def _flat(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """Joins all elements."""
  return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
