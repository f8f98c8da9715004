"""What programs send each other in an exchange: encoded vectors, as words."""

from typing import Any

import tensorflow as tf

from tf_cdops.fabric import tensorflow as tensorflow_fabric

# Messages travel as these: collective ops don't carry bytes.
_WORD = tf.int32


class Messages:
  """Makes words of vectors, and vectors of words, on one device.

  Words first: they show in which dtype the codec's messages are.
  """

  def __init__(self, fabric: tensorflow_fabric.TensorFlowFabric, codec: Any,
               place: str, dtype: tf.DType):
    """Initializes.

    Args:
      fabric: encodes and decodes.
      codec: how; None for not at all.
      place: the device.
      dtype: of the vectors.
    """
    self.place = place
    self._fabric, self._codec = fabric, codec
    self._dtype = self._sent_as = dtype

  @property
  def are_by_element(self) -> bool:
    """Whether that of several vectors is theirs, one after another."""
    return self._codec is None or bool(self._codec.by_element)

  def words(self, vector: tf.Tensor) -> tf.Tensor:
    """Returns a vector's message, as words."""
    message, length = vector, vector.shape[0]
    if self._codec is not None:
      message = self._fabric.encode(self._placed(vector), self._codec).tensor
      self._sent_as = message.dtype
    return _to_words(tf.ensure_shape(message, [self._length(length)]))

  def vector(self, words: tf.Tensor, length: int) -> tf.Tensor:
    """Returns the vector of a message that came as words, or its beginning."""
    message = _from_words(words, self._sent_as)
    if message.shape[0] != self._length(length):
      message = message[:self._length(length)]
    if self._codec is None:
      return message
    like = tf.zeros([length], self._dtype)  # Nobody looks at its numbers.
    return self._fabric.decode(
        self._placed(message), self._codec, self._placed(like)).tensor

  def _placed(self, vector: tf.Tensor) -> tensorflow_fabric.PlacedTensor:
    return tensorflow_fabric.PlacedTensor(vector, self.place, vector.shape[0])

  def num_words(self, length: int) -> int:
    """Returns how many words the message of so many numbers has."""
    return -(-self._length(length) * self._sent_as.size // _WORD.size)

  def _length(self, length: int) -> int:
    """Returns the length of the message of a vector of that length."""
    if self._codec is None:
      return length
    num_bytes: int = self._codec.num_bytes(length, self._dtype.size)
    return num_bytes // self._sent_as.size


def _to_words(message: tf.Tensor) -> tf.Tensor:
  """Returns a message's bytes as words, with zeros at its end if need be."""
  size = message.dtype.size
  if size == _WORD.size:
    return tf.bitcast(message, _WORD)
  if size > _WORD.size:
    return tf.reshape(tf.bitcast(message, _WORD), [-1])
  each = _WORD.size // size
  length = message.shape[0]
  if length % each:
    message = tf.pad(message, [[0, -length % each]])
  return tf.bitcast(tf.reshape(message, [-1, each]), _WORD)


def _from_words(words: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """Returns what `_to_words` made words of, and the zeros behind it."""
  if dtype.size == _WORD.size:
    return tf.bitcast(words, dtype)
  if dtype.size > _WORD.size:
    return tf.bitcast(tf.reshape(words, [-1, dtype.size // _WORD.size]), dtype)
  return tf.reshape(tf.bitcast(words, dtype), [-1])
