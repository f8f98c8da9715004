"""Finds numbers that aren't finite, and whose they are.

A sum of replicas' values is finite only if all of them are, and the sum of its
elements only if each is: so one pass over each result, on one of the devices
that have it, tells whether to look closer. Only then does each replica's device
look at what the replica has brought: of large numbers the probe overflows, too.
A sum that isn't finite though its terms are has overflowed by itself.
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
from tf_cdops.execution import finite_sums

_MODES = ("raise", "drop")
_MOST_NAMED = 8  # In one message.
_OVERFLOWED = "the sum of all replicas, each of which is finite"


# How many elements of each tensor aren't finite; and 0 where nobody asks.
_COUNTS = (lambda *parts: [tf.stack(list(map(finite_sums.count, parts)))],
           lambda *parts: [tf.zeros([len(parts)], tf.int32)])


def check_mode(mode: Any) -> str | None:
  if mode is not None and mode not in _MODES:
    raise errors.InputError(
        f"`on_nonfinite` ({mode!r}) must be None, 'raise' or 'drop'."
        + errors.did_you_mean(mode, _MODES))
  return mode


@dataclasses.dataclass(frozen=True)
class Guard:
  """Answers for the results of a batch.

  Attributes:
    mode: "raise" or "drop".
    places: the devices of the replicas that the batch is of.
    replicas: what messages call each replica, those of other programs too.
    tensors: what they call each tensor.
    total: adds up what replicas have, those of other programs too.
    gather: (what this program has) -> what each program has, in rows; None if
      there are no others.
    first: the number of this program's first replica.
  """

  mode: str
  places: Sequence[str]
  replicas: Sequence[str]
  tensors: Sequence[str]
  total: finite_sums.Total = dataclasses.field(
      default_factory=finite_sums.Total)
  gather: Callable[[tf.Tensor], tf.Tensor] | None = None
  first: int = 0

  @property
  def _home(self) -> str:
    return devices.host_of(self.places[0])

  def answered(self, batch: Sequence[Sequence[Any]],
               results: Sequence[Sequence[Any]],
               reduce_op: Any) -> list[list[Any]]:
    """Returns results behind the check that what was summed is finite.

    Args:
      batch: for each tensor, what each replica has.
      results: of each tensor, one value for each device that wants it.
      reduce_op: what they are: tf.distribute.ReduceOp.SUM or MEAN.

    Returns:
      The results; computing one raises tf.errors.InvalidArgumentError if the
      mode wants it.
    """
    plain = [list(parts) for parts in results]
    sums = finite_sums.Sums([parts[0] for parts in results])
    with tf.device(self._home):
      odd = self._looks_odd(results)
      if tf.executing_eagerly() and not odd:
        return plain
      count = finite_sums.Choice(*_COUNTS)  # Of replicas and sums alike.
      kept = self._look(odd, batch, count if self.mode == "raise" else
                        finite_sums.Choice(sums.kept, sums.nothing_kept))
      in_sums = self._look_at_sums(odd, results, count)
      # A graph's text is of use only then.
      is_fatal, text, is_dropped, *totals = tf.cond(
          odd, lambda: self._conclude(kept, in_sums, sums, reduce_op),
          lambda: [False, "", False, *(
              sums.no_total() if self.mode == "drop" else [])])
      if tf.executing_eagerly():
        if is_fatal:
          raise tf.errors.InvalidArgumentError(None, None,
                                               text.numpy().decode())
        raised = []
      else:
        raised = [tf.raw_ops.Assert(condition=~is_fatal, data=[text],
                                    summarize=1)]
      with tf.control_dependencies(raised):
        is_dropped = tf.identity(is_dropped)
    if self.mode == "raise":
      return _on_each_device(plain, lambda parts: _after(raised, parts))
    replaced = finite_sums.Choice(sums.cut, sums.not_cut)
    return _on_each_device(plain, lambda parts: replaced(
        tf.identity(is_dropped), [*parts, *map(tf.identity, totals)]))

  def _looks_odd(self, results: Sequence[Sequence[Any]]) -> tf.Tensor:
    """Returns whether to look closer; all programs come to the same."""
    there: dict[str, list[tf.Tensor]] = {}
    for i, parts in enumerate(results):  # One device for each, in turn.
      part = finite_sums.dense_part(parts[i % len(parts)])
      there.setdefault(devices.device_of(part), []).append(part)
    finite = []
    for device, parts in there.items():
      with tf.device(device):
        finite.append(tf.reduce_all(tf.math.is_finite(tf.stack(
            finite_sums.probes(parts)))))
    odd = ~tf.reduce_all(tf.stack(finite))
    if self.gather is None:
      return odd
    # A program that raised earlier would break others' collective ops.
    with tf.control_dependencies([
        finite_sums.dense_part(part) for parts in results for part in parts]):
      odd = tf.cast(tf.reshape(odd, [1]), tf.int32)
    return tf.reduce_any(self.gather(odd) > 0)

  def _look(self, odd: tf.Tensor, batch: Sequence[Sequence[Any]],
            look: finite_sums.Choice) -> list[list[tf.Tensor]]:
    """Looks at what each replica has, on its device, if something is odd.

    Args:
      odd: whether it is.
      batch: what each has of each tensor.
      look: (whether to, a replica's tensors) -> what is returned of it.

    Returns:
      For each replica how many elements of each tensor aren't finite and, if
      those are dropped, what it brings to the sums.
    """
    kept = []
    for rank, place in enumerate(self.places):
      parts = [executor.as_tensor(finite_sums.dense_part(values[rank]), place)
               for values in batch]
      with tf.device(place):
        kept.append(look(tf.identity(odd), parts))
    return kept

  def _look_at_sums(self, odd: tf.Tensor, results: Sequence[Sequence[Any]],
                    count: finite_sums.Choice) -> tf.Tensor:
    """Returns how many elements of each sum aren't finite, if some are odd."""
    parts = [finite_sums.dense_part(there[0]) for there in results]
    with tf.device(devices.device_of(parts[0])):
      counts, = count(tf.identity(odd), parts)
    return counts

  def _conclude(self, kept: Sequence[Sequence[tf.Tensor]], in_sums: tf.Tensor,
                sums: finite_sums.Sums, reduce_op: Any) -> list[tf.Tensor]:
    """Returns whether to raise, what to say, whether to replace sums, and how.

    Args:
      kept: what `_look` returned.
      in_sums: what `_look_at_sums` returned.
      sums: makes the sums.
      reduce_op: what they are.
    """
    own = tf.stack([counts for counts, *_ in kept])
    counts = own if self.gather is None else tf.reshape(
        self.gather(own), [len(self.replicas), len(self.tensors)])
    wrong = counts > 0
    overflowed = tf.where(tf.reduce_any(wrong, 0), 0, in_sums)
    every = tf.concat([counts, overflowed[tf.newaxis]], 0)
    # A graph's message would have a backslash before an apostrophe.
    if self.mode == "raise":
      return [tf.reduce_any(every > 0), self._text("", every), False]
    is_lost = tf.reduce_any(tf.reduce_all(wrong, 0))
    is_fatal = is_lost | tf.reduce_any(overflowed > 0)
    told = self._log(~is_fatal & tf.reduce_any(own > 0), own)
    with tf.control_dependencies(told):
      text = self._text(tf.where(is_lost, "no replica is left to sum: ", ""),
                        every)
    return [is_fatal, text, tf.reduce_any(wrong), *sums.total(
        [brought for _, *brought in kept], wrong, reduce_op, self.total)]

  def _log(self, wanted: tf.Tensor, own: tf.Tensor) -> list[Any]:
    """Logs what is dropped of this program's replicas."""
    text = lambda: self._text("left out of a sum: ", own, self.first)
    if tf.executing_eagerly():
      if wanted:
        logging.warning("%s", text().numpy().decode())
      return []

    def told() -> tf.Tensor:
      with tf.control_dependencies([tf.print(
          text(), output_stream=sys.stderr)]):
        return tf.constant(True)

    return [tf.cond(wanted, told, lambda: False)]

  def _text(self, before: str | tf.Tensor, counts: tf.Tensor,
            first: int = 0) -> tf.Tensor:
    """Names replicas and tensors, and how many elements aren't finite."""
    found = tf.where(counts > 0)
    named = found[:_MOST_NAMED]
    number = tf.gather_nd(counts, named)
    lines = tf.strings.join([
        tf.gather([*self.replicas, _OVERFLOWED], named[:, 0] + first), ": ",
        tf.gather(list(self.tensors), named[:, 1]), " has ",
        tf.strings.as_string(number),
        # A v1 graph's == compares objects.
        tf.where(tf.equal(number, 1), " element that is", " elements that are"),
        " not finite"])
    more = tf.shape(found)[0] - _MOST_NAMED
    return tf.strings.join([
        f"tf_cdops on_nonfinite={self.mode}: ", before,
        tf.strings.reduce_join(lines, separator="; "),
        tf.where(more > 0, tf.strings.join(
            ["; and ", tf.strings.as_string(more), " more"]), ""), "."])


def _on_each_device(
    results: Sequence[Sequence[Any]],
    make: Callable[[list[tf.Tensor]], list[tf.Tensor]]) -> list[list[Any]]:
  """Makes each device's results anew, there.

  Args:
    results: of each tensor, one for each device.
    make: (a device's dense parts) -> others.
  """
  columns = []
  for there in zip(*results, strict=True):
    parts = [finite_sums.dense_part(value) for value in there]
    with tf.device(devices.device_of(parts[0])):
      columns.append([finite_sums.with_part(value, part)
                      for value, part in zip(there, make(parts), strict=True)])
  return [list(row) for row in zip(*columns, strict=True)]


def _after(done: Sequence[Any], parts: list[tf.Tensor]) -> list[tf.Tensor]:
  """Returns tensors that wait for something, by one op."""
  if not done:  # In eager code it has been done.
    return parts
  with tf.control_dependencies(done):
    waited: list[tf.Tensor] = tf.raw_ops.IdentityN(input=parts)
  return waited
