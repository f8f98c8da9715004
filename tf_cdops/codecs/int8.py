"""int8: a quarter of float32's bytes, with a scale for each 1,024 numbers."""

from typing import Any

import tensorflow as tf

from tf_cdops import registry

_BLOCK, _SCALE_BYTES = 1024, 4
# What isn't finite has codes of its own, and spoils no scale.
_MOST, _INFINITY, _NAN = 126, 127, -128


def _num_bytes(elements: Any, itemsize: int) -> Any:
  del itemsize
  return elements + _SCALE_BYTES * (-(-elements // _BLOCK))


def _encode(vector: tf.Tensor) -> tf.Tensor:
  """Returns all scales, and then a byte for each number."""
  length = tf.size(vector)
  blocks = _blocks(vector, length)
  finite = tf.math.is_finite(blocks)
  scales = tf.reduce_max(tf.where(finite, tf.abs(blocks), 0.0), axis=1,
                         keepdims=True) / _MOST
  codes = tf.clip_by_value(tf.round(tf.math.divide_no_nan(blocks, scales)),
                           -_MOST, _MOST)
  codes = tf.where(finite, codes, tf.where(
      tf.math.is_nan(blocks), float(_NAN), tf.sign(blocks) * _INFINITY))
  codes = tf.reshape(tf.cast(codes, tf.int8), [-1])[:length]
  return tf.concat([
      tf.reshape(tf.bitcast(tf.reshape(scales, [-1]), tf.uint8), [-1]),
      tf.bitcast(codes, tf.uint8)], 0)


def _decode(message: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
  # A block has its scale and 1,024 codes; the last may have fewer.
  count = -(-tf.size(message) // (_BLOCK + _SCALE_BYTES))
  scales = tf.bitcast(tf.reshape(message[:_SCALE_BYTES * count],
                                 [-1, _SCALE_BYTES]), tf.float32)
  codes = tf.cast(tf.bitcast(message[_SCALE_BYTES * count:], tf.int8),
                  tf.float32)
  length = tf.size(codes)
  numbers = _blocks(codes, length) * scales[:, tf.newaxis]
  numbers = tf.reshape(numbers, [-1])[:length]
  numbers = tf.where(tf.equal(tf.abs(codes), _INFINITY),
                     codes * float("inf"), numbers)
  numbers = tf.where(tf.equal(codes, _NAN), float("nan"), numbers)
  return tf.ensure_shape(numbers, [like.shape.num_elements()])


def _blocks(vector: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
  return tf.reshape(tf.pad(vector, [[0, -length % _BLOCK]]), [-1, _BLOCK])


registry.register_wire_codec(
    "int8", description="8 bits, and a scale for each 1,024 numbers.",
    encode=_encode, decode=_decode, num_bytes=_num_bytes, dtypes=("float32",),
    unit=0.5 / _MOST, unit_of="the largest magnitudes of each 1,024",
    has_feedback=True)
