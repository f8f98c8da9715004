"""bfloat16 and float16: half the bytes of float32."""

from typing import Any

import tensorflow as tf

from tf_cdops import registry
from tf_cdops.base import traced_once


def _num_bytes(elements: Any, itemsize: int) -> Any:
  del itemsize
  return 2 * elements


def _decode(message: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
  return tf.cast(message, like.dtype)


def _to_bfloat16(vector: tf.Tensor) -> tf.Tensor:
  return tf.cast(vector, tf.bfloat16)


@traced_once.traced_once
def _to_float16(vector: tf.Tensor) -> tf.Tensor:
  """What is finite stays so; infinities and NaNs pass."""
  return tf.cond(_fits(vector), lambda: tf.cast(vector, tf.float16),
                 lambda: _saturated(vector))


@traced_once.traced_once
def _beyond_float16(vector: tf.Tensor) -> tf.Tensor:
  return tf.cond(
      _fits(vector), lambda: tf.constant(0, tf.int64),
      lambda: tf.math.count_nonzero(tf.math.is_finite(vector)
                                    & (tf.abs(vector) > tf.float16.max)))


def _fits(vector: tf.Tensor) -> tf.Tensor:
  """Whether all can be cast as they are; looking is all that most cost."""
  most = tf.cast(tf.float16.max, vector.dtype)
  return (tf.reduce_max(vector) <= most) & (tf.reduce_min(vector) >= -most)


def _saturated(vector: tf.Tensor) -> tf.Tensor:
  most = tf.cast(tf.float16.max, vector.dtype)
  kept = tf.clip_by_value(vector, -most, most)
  return tf.cast(tf.where(tf.math.is_finite(vector), kept, vector), tf.float16)


registry.register_wire_codec(
    "bfloat16", description="8 significant bits, and float32's range.",
    encode=_to_bfloat16, decode=_decode, num_bytes=_num_bytes,
    dtypes=("float32", "float64"), unit=2.0**-8, is_exact_again=True,
    by_element=True)
registry.register_wire_codec(
    "float16", description="11 significant bits; beyond 65504 it saturates.",
    encode=_to_float16, decode=_decode, num_bytes=_num_bytes,
    dtypes=("float32", "float64"), unit=2.0**-11, is_exact_again=True,
    overflows=_beyond_float16, least=2.0**-25,
    by_element=True)
