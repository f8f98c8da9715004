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
  length = vector.shape.num_elements()
  message = (_message_of_blocks if _is_whole(length) else _message)(vector)
  return tf.ensure_shape(
      message, [None if length is None else _num_bytes(length, 4)])


def _decode(message: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
  length = like.shape.num_elements()
  numbers = (_numbers_of_blocks if _is_whole(length) else _numbers)(message)
  return tf.ensure_shape(numbers, [length])


def _is_whole(length: int | None) -> bool:
  """Whether there are blocks of 1,024 alone, which needn't be filled up."""
  return length is not None and length % _BLOCK == 0


@traced_once.traced_once
def _message(vector: tf.Tensor) -> tf.Tensor:
  missing = -tf.size(vector) % _BLOCK
  message = _message_of_blocks(tf.pad(vector, [[0, missing]]))
  codes, _, scales = tf.split(message, [
      tf.size(vector), missing, -1], num=3)
  return tf.concat([codes, scales], 0)


@traced_once.traced_once
def _message_of_blocks(vector: tf.Tensor) -> tf.Tensor:
  blocks = tf.reshape(vector, [-1, _BLOCK])
  largest = tf.reduce_max(tf.abs(blocks), axis=1, keepdims=True)
  scales, codes = tf.cond(
      tf.reduce_all(tf.math.is_finite(largest)),
      lambda: _of_finite(blocks, largest), lambda: _of_any(blocks))
  return tf.concat([tf.reshape(tf.bitcast(part, tf.uint8), [-1])
                    for part in (codes, scales)], 0)


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
  codes, scales = tf.split(message, [length, _SCALE_BYTES * count])
  filled = tf.pad(codes, [[0, _BLOCK * count - length]])
  return _numbers_of_blocks(tf.concat([filled, scales], 0))[:length]


@traced_once.traced_once
def _numbers_of_blocks(message: tf.Tensor) -> tf.Tensor:
  count = tf.size(message) // (_BLOCK + _SCALE_BYTES)
  codes, scales = tf.split(message, [_BLOCK * count, _SCALE_BYTES * count])
  scales = tf.bitcast(tf.reshape(scales, [-1, 1, _SCALE_BYTES]), tf.float32)
  codes = tf.reshape(tf.bitcast(codes, tf.int8), [-1, _BLOCK])
  numbers = tf.cast(codes, tf.float32) * tf.abs(scales)
  numbers = tf.cond(tf.reduce_any(scales < 0),
                    lambda: _with_others(numbers, codes), lambda: numbers)
  return tf.reshape(numbers, [-1])


def _with_others(numbers: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
  for code, number in ((_INFINITY, "inf"), (-_INFINITY, "-inf"),
                       (_NAN, "nan")):
    numbers = tf.where(tf.equal(codes, code), float(number), numbers)
  return numbers


registry.register_wire_codec(
    "int8", description="8 bits, and a scale for each 1,024 numbers.",
    encode=_encode, decode=_decode, num_bytes=_num_bytes, dtypes=("float32",),
    unit=0.5 / _MOST, unit_of="the largest magnitudes of each 1,024",
    has_feedback=True, least=_LEAST_SCALE * _MOST,
    # A rough guess: between two workers on the loopback, where a byte hardly
    # costs, 4 of 16 MB took 1.5 of the time without a wire, and 0.9 with
    # bfloat16, on a busy machine.
    passes=3.0)
