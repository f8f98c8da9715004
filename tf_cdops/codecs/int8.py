"""int8: a quarter of float32's bytes, with a scale for each 1,024 numbers.

A message is a byte for each number, and then the scales. What isn't finite has
codes of its own, and spoils no scale. It is rare, and finding it takes longer
than all the rest: so a message that has any has negative scales, and others
are neither encoded nor decoded by the ops for it.
"""

from typing import Any

import tensorflow as tf

from tf_cdops import registry
from tf_cdops.base import traced_once

_BLOCK, _SCALE_BYTES = 1024, 4
_MOST, _INFINITY, _NAN = 126, 127, -128
# Whose inverse is finite, whether a device has smaller numbers or not.
_LEAST_SCALE = 2.0**-125


def _num_bytes(elements: Any, itemsize: int) -> Any:
  del itemsize
  return elements + _SCALE_BYTES * (-(-elements // _BLOCK))


def _encode(vector: tf.Tensor) -> tf.Tensor:
  message = _message(vector)
  length = vector.shape.num_elements()
  return tf.ensure_shape(
      message, [None if length is None else _num_bytes(length, 4)])


def _decode(message: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
  return tf.ensure_shape(_numbers(message), [like.shape.num_elements()])


@traced_once.traced_once
def _message(vector: tf.Tensor) -> tf.Tensor:
  blocks = _blocks(vector)
  largest = tf.reduce_max(tf.abs(blocks), axis=1, keepdims=True)
  scales, codes = tf.cond(
      tf.reduce_all(tf.math.is_finite(largest)),
      lambda: _of_finite(blocks, largest), lambda: _of_any(blocks))
  codes = tf.reshape(tf.bitcast(codes, tf.uint8), [-1])
  return tf.concat([
      tf.slice(codes, [0], tf.shape(vector)),
      tf.reshape(tf.bitcast(scales, tf.uint8), [-1])], 0)


def _of_finite(blocks: tf.Tensor,
               largest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  scales = largest / _MOST
  scales = tf.where(scales < _LEAST_SCALE, 0.0, scales)
  codes = tf.math.rint(blocks * tf.math.divide_no_nan(1.0, scales))
  return scales, tf.cast(codes, tf.int8)


def _of_any(blocks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  finite = tf.math.is_finite(blocks)
  known = tf.where(finite, blocks, 0.0)
  scales, codes = _of_finite(
      known, tf.reduce_max(tf.abs(known), axis=1, keepdims=True))
  others = tf.where(tf.math.is_nan(blocks), float(_NAN),
                    tf.sign(blocks) * _INFINITY)
  return (-tf.maximum(scales, _LEAST_SCALE),
          tf.where(finite, codes, tf.cast(others, tf.int8)))


@traced_once.traced_once
def _numbers(message: tf.Tensor) -> tf.Tensor:
  # A block has its scale and 1,024 codes; the last may have fewer.
  count = -(-tf.size(message) // (_BLOCK + _SCALE_BYTES))
  length = tf.size(message) - _SCALE_BYTES * count
  scales = tf.bitcast(tf.reshape(tf.slice(message, [length], [-1]),
                                 [-1, 1, _SCALE_BYTES]), tf.float32)
  codes = tf.bitcast(_blocks(tf.slice(message, [0], [length])), tf.int8)
  numbers = tf.cast(codes, tf.float32) * tf.abs(scales)
  numbers = tf.cond(tf.reduce_any(scales < 0),
                    lambda: _with_others(numbers, codes), lambda: numbers)
  return tf.slice(tf.reshape(numbers, [-1]), [0], [length])


def _with_others(numbers: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
  for code, number in ((_INFINITY, "inf"), (-_INFINITY, "-inf"),
                       (_NAN, "nan")):
    numbers = tf.where(tf.equal(codes, code), float(number), numbers)
  return numbers


def _blocks(vector: tf.Tensor) -> tf.Tensor:
  """Returns blocks of 1,024, the last of them filled up with zeros."""
  missing = -tf.size(vector) % _BLOCK
  whole = tf.cond(tf.equal(missing, 0), lambda: vector,  # No copy.
                  lambda: tf.pad(vector, [[0, missing]]))
  return tf.reshape(whole, [-1, _BLOCK])


registry.register_wire_codec(
    "int8", description="8 bits, and a scale for each 1,024 numbers.",
    encode=_encode, decode=_decode, num_bytes=_num_bytes, dtypes=("float32",),
    unit=0.5 / _MOST, unit_of="the largest magnitudes of each 1,024",
    has_feedback=True, least=_LEAST_SCALE * _MOST)
