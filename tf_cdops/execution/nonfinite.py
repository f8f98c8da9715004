"""Finds numbers that aren't finite before a sum spreads them.

Each replica's device looks at the replica's own tensors. The sum of a tensor
tells: it is finite only if all elements are, and computing it writes nothing.
Only where it isn't are elements counted, since finite ones may have overflowed.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.execution import devices
from tf_cdops.execution import executor
from tf_cdops.execution import sparse

_MODES = ("raise", "drop")
_MOST_NAMED = 8  # In one message.
# Tensors are looked at together up to so many bytes. To be left out, a tensor
# waits for the others; with more than that, the first would be sent too late.
_GROUP_BYTES = 16 << 20


def check_mode(mode: Any) -> str | None:
  if mode is not None and mode not in _MODES:
    raise errors.InputError(
        f"`on_nonfinite` ({mode!r}) must be None, 'raise' or 'drop'."
        + errors.did_you_mean(mode, _MODES))
  return mode


def can_be(dtype: tf.DType) -> bool:
  """Whether numbers of this type can be infinite, or none."""
  return bool(dtype.is_floating or dtype.is_complex)


@dataclasses.dataclass(frozen=True)
class Look:
  """What was seen of a batch.

  Attributes:
    batch: the tensors to sum; with "drop", zeros instead of those not finite.
    counts: for each device, how many elements of each tensor aren't finite.
  """

  batch: list[list[Any]]
  counts: list[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Guard:
  """Looks at a batch before its sum, and answers for the results.

  Attributes:
    mode: "raise" or "drop".
    places: the devices of the replicas that the batch is of.
    replicas: what messages call each replica, those of other programs too.
    tensors: what they call each tensor.
    gather: (counts of this program's replicas) -> those of all; None if these
      are all.
    first: the number of this program's first replica.
  """

  mode: str
  places: Sequence[str]
  replicas: Sequence[str]
  tensors: Sequence[str]
  gather: Callable[[tf.Tensor], tf.Tensor] | None = None
  first: int = 0

  def look(self, batch: Sequence[Sequence[Any]]) -> Look:
    """Looks at a batch: for each tensor, one value per device."""
    looked: list[list[Any]] = [list(values) for values in batch]
    counts = []
    for rank, place in enumerate(self.places):
      mine = [values[rank] for values in batch]
      found = []
      for start, end in _groups(mine):
        kept, count = _look_at(mine[start:end], place, self.mode == "drop")
        found.append(count)
        for i, value in enumerate(kept, start):
          looked[i][rank] = value
      with tf.device(place):
        counts.append(found[0] if len(found) == 1 else tf.concat(found, 0))
    return Look(looked, counts)

  def answered(self, look: Look,
               results: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Returns the results of what was looked at, behind the check.

    Args:
      look: what was seen.
      results: of each tensor, one value for each device that wants it.

    Returns:
      The results; computing one raises tf.errors.InvalidArgumentError if the
      mode wants it.
    """
    with tf.device(devices.host_of(self.places[0])):
      own = tf.stack(look.counts)
      counts = own if self.gather is None else self.gather(own)
      wrong = counts > 0
      fatal = tf.reduce_any(wrong if self.mode == "raise"
                            else tf.reduce_all(wrong, 0))
      # A program that stopped earlier would break others' collective ops.
      waited = [] if self.gather is None else _dense_parts(results)
      with tf.control_dependencies(waited):
        done = self._raise(fatal, counts)
      if self.mode == "raise":
        return _behind(done, results)
      done += self._log(~fatal & tf.reduce_any(own > 0), own)
      with tf.control_dependencies(done):
        dropped = tf.reduce_any(wrong)
      count = len(self.replicas)
      left = count - tf.math.count_nonzero(wrong, 0)
      factors = count / tf.maximum(left, 1)
    return _scaled(dropped, factors, results)

  def _raise(self, fatal: tf.Tensor, counts: tf.Tensor) -> list[Any]:
    """Raises if it must; returns what a graph's results must wait for."""
    # A graph's message would have a backslash before an apostrophe.
    text = lambda: self._text(
        "" if self.mode == "raise" else "no replica is left to sum: ", counts)
    if not tf.executing_eagerly():
      return [tf.raw_ops.Assert(
          condition=~fatal, data=[tf.cond(fatal, text, lambda: "")],
          summarize=1)]
    if fatal:
      raise tf.errors.InvalidArgumentError(None, None, _decoded(text()))
    return []

  def _log(self, wanted: tf.Tensor, own: tf.Tensor) -> list[Any]:
    """Logs what is dropped of this program's replicas."""
    text = lambda: self._text("left out of a sum: ", own, self.first)
    if tf.executing_eagerly():
      if wanted:
        logging.warning("%s", _decoded(text()))
      return []

    def told() -> tf.Tensor:
      with tf.control_dependencies([tf.print(
          text(), output_stream=sys.stderr)]):
        return tf.constant(True)

    return [tf.cond(wanted, told, lambda: False)]

  def _text(self, before: str, counts: tf.Tensor, first: int = 0) -> tf.Tensor:
    """Names replicas and tensors, and how many elements aren't finite."""
    found = tf.where(counts > 0)
    named = found[:_MOST_NAMED]
    number = tf.gather_nd(counts, named)
    lines = tf.strings.join([
        tf.gather(list(self.replicas), named[:, 0] + first), ": ",
        tf.gather(list(self.tensors), named[:, 1]), " has ",
        tf.strings.as_string(number),
        # A v1 graph's == compares objects.
        tf.where(tf.equal(number, 1), " element that is", " elements that are"),
        " not finite"])
    more = tf.shape(found)[0] - _MOST_NAMED
    return tf.strings.join([
        f"tf_cdops on_nonfinite={self.mode}: {before}",
        tf.strings.reduce_join(lines, separator="; "),
        tf.where(more > 0, tf.strings.join(
            ["; and ", tf.strings.as_string(more), " more"]), ""), "."])


def _groups(values: Sequence[Any]) -> list[tuple[int, int]]:
  """Returns where tensors that are looked at together begin and end."""
  groups, start, size = [], 0, 0
  for i, value in enumerate(values):
    tensor = value.values if sparse.is_sparse(value) else value
    here = (tensor.shape.num_elements() or 0) * tensor.dtype.size
    if i > start and size + here > _GROUP_BYTES:
      groups.append((start, i))
      start, size = i, 0
    size += here
  return [*groups, (start, len(values))]


def _look_at(values: Sequence[Any], place: str,
             drop: bool) -> tuple[list[Any], tf.Tensor]:
  """Returns one replica's values, and how many elements aren't finite."""
  values = [value if sparse.is_sparse(value)
            else executor.as_tensor(value, place) for value in values]
  parts = _dense_parts([values])
  with tf.device(place):
    odd = ~tf.reduce_all(tf.math.is_finite(tf.stack(_probes(parts))))

    def counted() -> list[tf.Tensor]:
      counts = [_count(part) for part in parts]
      return [tf.stack(counts), *(
          [tf.where(count > 0, tf.zeros_like(part), part)
           for part, count in zip(parts, counts, strict=True)]
          if drop else [])]

    count, *kept = tf.cond(odd, counted, lambda: [
        tf.zeros([len(parts)], tf.int32), *(parts if drop else [])])
  if not drop:
    return list(values), count
  for part, known in zip(kept, parts, strict=True):
    part.set_shape(known.shape)
  return _with_parts(values, kept), count


def _probes(parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
  """Returns a float32 for each tensor, finite only if all its elements are."""
  axes: dict[int, tf.Tensor] = {}
  probes = []
  for part in parts:
    if part.dtype.is_complex:
      part = tf.math.real(part) + tf.math.imag(part)
    rank = part.shape.rank
    if rank is None:
      part, rank = tf.reshape(part, [-1]), 1
    if rank not in axes:
      axes[rank] = tf.constant(list(range(rank)), tf.int32)
    # In 16 bits a sum soon overflows, and a mean doesn't.
    probe = (tf.raw_ops.Mean if part.dtype.size == 2 else tf.raw_ops.Sum)(
        input=part, axis=axes[rank])
    probes.append(tf.cast(probe, tf.float32))
  return probes


def _count(part: tf.Tensor) -> tf.Tensor:
  if part.dtype.is_complex:
    finite = (tf.math.is_finite(tf.math.real(part))
              & tf.math.is_finite(tf.math.imag(part)))
  else:
    finite = tf.math.is_finite(part)
  return tf.math.count_nonzero(~finite, dtype=tf.int32)


def _behind(done: Sequence[Any],
            results: Sequence[Sequence[Any]]) -> list[list[Any]]:
  """Returns results that wait for what was done."""
  if not done:  # In eager code it has been done.
    return [list(parts) for parts in results]
  with tf.control_dependencies(done):
    return [[executor.copy_to([devices.device_of(part)], part)[0]
             for part in parts] for parts in results]


def _scaled(dropped: tf.Tensor, factors: tf.Tensor,
            results: Sequence[Sequence[Any]]) -> list[list[Any]]:
  """Returns results times their tensor's factor if anything was dropped."""
  scaled = [list(parts) for parts in results]
  by_device: dict[str, list[tuple[int, int]]] = {}
  for i, parts in enumerate(results):
    for j, part in enumerate(parts):
      by_device.setdefault(devices.device_of(part), []).append((i, j))
  # A choice on each device, or else results would go from one to another.
  for device, there in by_device.items():
    values = [results[i][j] for i, j in there]
    with tf.device(device):
      for (i, j), value in zip(there, _scaled_here(
          tf.identity(dropped), tf.identity(factors), [i for i, _ in there],
          values), strict=True):
        scaled[i][j] = value
  return scaled


def _scaled_here(dropped: tf.Tensor, factors: tf.Tensor, which: Sequence[int],
                 values: Sequence[Any]) -> list[Any]:
  parts = _dense_parts([values])
  scaled = tf.cond(
      dropped, lambda: [part * tf.cast(factors[i], part.dtype)
                        for i, part in zip(which, parts, strict=True)],
      lambda: parts)
  for part, known in zip(scaled, parts, strict=True):
    part.set_shape(known.shape)
  return _with_parts(values, scaled)


def _dense_parts(batch: Sequence[Sequence[Any]]) -> list[tf.Tensor]:
  """Returns the tensors, and of IndexedSlices their values."""
  return [value.values if sparse.is_sparse(value) else value
          for values in batch for value in values]


def _with_parts(values: Sequence[Any], parts: Sequence[tf.Tensor]) -> list[Any]:
  """Returns values that have these instead of their own."""
  return [tf.IndexedSlices(part, value.indices, value.dense_shape)
          if sparse.is_sparse(value) else part
          for value, part in zip(values, parts, strict=True)]


def _decoded(text: tf.Tensor) -> str:
  return str(text.numpy().decode())
