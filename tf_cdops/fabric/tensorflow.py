"""Emits an algorithm's verbs as TensorFlow ops, each on its device.

Values are vectors only as far as they must be: a tensor keeps its shape until
it is split, so an algorithm that never splits it costs no reshape.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.fabric import base
from tf_cdops.fabric import engines


# Of tensors, in bytes; no TensorFlow asks for more.
ALIGNMENT = 64


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedTensor:
  """A tensor, the device it is on, and its number of elements.

  `length` is None where the shape isn't known before the graph runs. An empty
  part has no tensor: nothing is emitted for it.
  """

  tensor: Any
  place: str
  length: int | None


Encode = Callable[[tf.Tensor, base.Codec, str], tf.Tensor]


class TensorFlowFabric:
  """Emits ops into the current graph, or runs them if there is none."""

  def __init__(self, options: engines.Options | None = None,
               encode: Encode | None = None):
    """Initializes.

    Args:
      options: what the native engines should heed.
      encode: (vector, codec, place) -> the message; the codec's own if None.
    """
    self.emitter = Emitter()
    self._options = options or engines.Options()
    self._encode = encode

  def place(self, tensors: Sequence[tf.Tensor],
            places: Sequence[str]) -> list[PlacedTensor]:
    """Returns tensors of one size, each on its place, as values."""
    lengths = [tensor.shape.num_elements() for tensor in tensors]
    length = None if None in lengths else lengths[0]
    return [PlacedTensor(tensor, place, length)
            for tensor, place in zip(tensors, places, strict=True)]

  def tensor(self, value: PlacedTensor, shape_of: tf.Tensor) -> tf.Tensor:
    """Returns a whole value as a tensor of the same shape as `shape_of`."""
    tensor = value.tensor
    if tensor.shape.rank == shape_of.shape.rank:
      return tensor
    if shape_of.shape.is_fully_defined():
      return self.emitter.reshape(tensor, tuple(shape_of.shape), value.place)
    with tf.device(value.place):
      return tf.reshape(tensor, tf.shape(shape_of))

  def split(self, value: PlacedTensor, count: int) -> list[PlacedTensor]:
    if count == 1:
      return [value]
    if value.length is None:
      return self._split_unknown(value, count)
    lengths = base.part_lengths(value.length, count)
    filled = [length for length in lengths if length]
    tensors = [value.tensor]
    if len(filled) > 1:
      tensors = self.emitter.split(value.tensor, filled, value.place)
    return [PlacedTensor(tensors[i] if length else None, value.place, length)
            for i, length in enumerate(lengths)]

  def _split_unknown(self, value: PlacedTensor,
                     count: int) -> list[PlacedTensor]:
    """Splits a value whose length is known only when the graph runs."""
    flat = self.emitter.flat(value.tensor, value.place)
    with tf.device(value.place):
      # As part_lengths: the longer parts first.
      lengths = (tf.size(flat) + tf.range(count - 1, -1, -1)) // count
      return [PlacedTensor(tensor, value.place, None)
              for tensor in tf.split(flat, lengths, num=count)]

  def concat(self, parts: Sequence[PlacedTensor], place: str) -> PlacedTensor:
    filled = [part for part in parts if part.length != 0]
    if len(filled) < 2:
      return self.copy(filled[0] if filled else parts[0], place)
    # Flat where they are: the axis of what arrives is then known to be one.
    joined = self.emitter.concat(
        [self.emitter.flat(part.tensor, part.place) for part in filled], place)
    return PlacedTensor(joined, place, joined.shape.num_elements())

  def add(self, values: Sequence[PlacedTensor], place: str, *,
          in_order: bool = False) -> PlacedTensor:
    if len(values) == 1 or values[0].length == 0:
      return self.copy(values[0], place)
    values = self._of_one_shape(values)
    if in_order:
      with tf.device(place):
        total = sum_in_order([value.tensor for value in values])
    else:
      tensors = [_kept_from_rewriting(value, place, values)
                 for value in values]
      with tf.device(place):
        total = tf.raw_ops.AddN(inputs=tensors)
    return PlacedTensor(total, place, values[0].length)

  def copy(self, value: PlacedTensor, place: str) -> PlacedTensor:
    if value.place == place:
      return value
    if value.length == 0:
      return dataclasses.replace(value, place=place)
    return PlacedTensor(copy(value.tensor, place), place,
                        value.length)

  def encode(self, value: PlacedTensor, codec: base.Codec) -> PlacedTensor:
    if value.length == 0:
      return value
    vector = self.emitter.flat(value.tensor, value.place)
    with tf.device(value.place):
      message = (codec.encode(vector) if self._encode is None
                 else self._encode(vector, codec, value.place))
    return dataclasses.replace(value, tensor=message)

  def decode(self, message: PlacedTensor, codec: base.Codec,
             like: PlacedTensor) -> PlacedTensor:
    if message.length == 0:
      return message
    with tf.device(message.place):
      decoded = codec.decode(message.tensor, like.tensor)
    _check_decoded(decoded, like.tensor, codec)
    return dataclasses.replace(message, tensor=decoded)

  def native_all_reduce(self, engine: str, values: Sequence[PlacedTensor],
                        group: base.Group) -> list[PlacedTensor]:
    if values[0].length == 0:
      return list(values)
    values = self._of_one_shape(values)
    sums = engines.all_reduce(engine, [value.tensor for value in values],
                              group.places, self._options)
    return [dataclasses.replace(value, tensor=total)
            for value, total in zip(values, sums, strict=True)]

  def _of_one_shape(self, values: Sequence[PlacedTensor]
                    ) -> Sequence[PlacedTensor]:
    """Returns vectors, if some are: of workers that have split and joined.

    One with a single device hasn't: its tensor has kept its shape.
    """
    rank = values[0].tensor.shape.rank
    if all(value.tensor.shape.rank == rank for value in values):
      return values
    return [dataclasses.replace(
        value, tensor=self.emitter.flat(value.tensor, value.place))
            for value in values]


def _check_decoded(decoded: Any, like: tf.Tensor, codec: base.Codec) -> None:
  expected = like.shape.num_elements()
  shape = getattr(decoded, "shape", None)
  if (getattr(decoded, "dtype", None) != like.dtype or shape is None
      or not shape.is_compatible_with([expected])):
    raise errors.AlgorithmError(
        f"`wire` ({codec.name!r}) must decode to a vector of "
        f"{'' if expected is None else f'{expected} '}{like.dtype.name}, as "
        f"was encoded, and gives {decoded!r}; mend the codec's `decode`.")


def sum_in_order(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """Sums tensors strictly one after the other, so that the bits are fixed.

  AddN starts with whichever input's memory it can reuse, and Grappler sorts
  its inputs and makes one of any chain of additions. It doesn't see through
  the check of a shape between them. (Subtractions would do, but give -0.0.)
  """
  dtype = tensors[0].dtype
  if len(tensors) < 3 or not (dtype.is_floating or dtype.is_complex):
    return tf.raw_ops.AddN(inputs=list(tensors))
  total = tensors[0]
  for tensor in tensors[1:]:
    total = tf.add(tf.ensure_shape(total, total.shape), tensor)
  return total


def _kept_from_rewriting(value: PlacedTensor, place: str,
                         terms: Sequence[PlacedTensor]) -> tf.Tensor:
  """Returns a term of a sum on `place`, such that Grappler leaves it be.

  Where Grappler believes that a device's memory is short, and to a logical CPU
  it gives 256 MB, it makes of an AddN of three or more a variable, set to
  zeros, to which each term is added. That takes up to twice the time and keeps
  the zeros for good (BERT on four: 222 ms, not 133, and 490 MB). It does so for
  terms that are on the sum's own device; so this one is said to be on the CPU
  beside, whose memory is the same. A mere identity would be optimized away.
  """
  if (value.place != place or value.length is None or len(terms) < 3
      or tf.executing_eagerly()):
    return value.tensor
  worker, _, device = place.rpartition("/device:")
  beside = [term.place for term in terms if term.place != place
            and term.place.startswith(f"{worker}/device:CPU")]
  if not device.startswith("CPU") or not beside:
    return value.tensor
  with tf.device(beside[0]):
    return tf.raw_ops.EnsureShape(input=value.tensor, shape=value.tensor.shape)


class Emitter:
  """Emits the ops of one batch, into one graph or, in eager mode, at once.

  Reshaping, joining and splitting take small constants: a shape, an axis,
  sizes. A batch has thousands of such ops, so those of one device share one
  constant of each value. The ops are raw: the public functions wrap every call
  in checks and name scopes, which for a batch come to seconds.
  """

  def __init__(self) -> None:
    self._constants: dict[tuple[str, object], tf.Tensor] = {}

  def flat(self, tensor: tf.Tensor, place: str) -> tf.Tensor:
    """Returns the elements as a vector; a vector stays as it is."""
    if tensor.shape.rank == 1:
      return tensor
    return self.reshape(tensor, (-1,), place)

  def reshape(self, tensor: tf.Tensor, shape: tuple[int, ...],
              place: str) -> tf.Tensor:
    with tf.device(place):
      return tf.raw_ops.Reshape(tensor=tensor,
                                shape=self._constant(shape, place))

  def concat(self, vectors: Sequence[tf.Tensor], place: str) -> tf.Tensor:
    """Joins vectors."""
    with tf.device(place):
      return tf.raw_ops.ConcatV2(values=list(vectors),
                                 axis=self._constant(0, place))

  def split(self, tensor: tf.Tensor, lengths: Sequence[int],
            place: str) -> list[tf.Tensor]:
    """Cuts the elements into vectors of these lengths.

    Split of a vector copies each part. Unpack shares the memory of parts that
    are aligned, and so sends and adds them from where they are.
    """
    even = len(set(lengths)) == 1
    if even and lengths[0] * tensor.dtype.size % ALIGNMENT == 0:
      rows = self.reshape(tensor, (len(lengths), -1), place)
      return self.unstack(rows, len(lengths), place)
    vector = self.flat(tensor, place)
    with tf.device(place):
      axis = self._constant(0, place)
      if even:
        return tf.raw_ops.Split(axis=axis, value=vector,
                                num_split=len(lengths))
      return tf.raw_ops.SplitV(
          value=vector, size_splits=self._constant(tuple(lengths), place),
          axis=axis, num_split=len(lengths))

  def stack(self, tensors: Sequence[tf.Tensor], place: str) -> tf.Tensor:
    """Joins tensors of one shape along a new first axis."""
    with tf.device(place):
      return tf.raw_ops.Pack(values=list(tensors), axis=0)

  def unstack(self, stacked: tf.Tensor, count: int,
              place: str) -> list[tf.Tensor]:
    """Parts what `stack` joined."""
    with tf.device(place):
      return tf.raw_ops.Unpack(value=stacked, num=count, axis=0)

  def _constant(self, value: int | tuple[int, ...], place: str) -> tf.Tensor:
    """Returns the constant; call it where `place` is the device."""
    key = place, value
    if key not in self._constants:
      self._constants[key] = tf.constant(value, tf.int32)
    return self._constants[key]


def copy(tensor: tf.Tensor, place: str) -> tf.Tensor:
  """Returns the tensor on `place`."""
  if tf.executing_eagerly():
    copied = tf_compat.copied_now(tensor, place)
    if copied is not None:
      return copied
  with tf.device(place):
    return tf.raw_ops.Identity(input=tensor)

