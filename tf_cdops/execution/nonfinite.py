"""Finds numbers that aren't finite, and whose they are.

A sum of replicas' values is finite only if all of them are, and the sum of its
elements only if each is: so one pass over each result, on one of the devices
that have it, tells whether to look closer. Only then does each replica's device
look at what the replica has brought: finite numbers may have overflowed.
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


def check_mode(mode: Any) -> str | None:
  if mode is not None and mode not in _MODES:
    raise errors.InputError(
        f"`on_nonfinite` ({mode!r}) must be None, 'raise' or 'drop'."
        + errors.did_you_mean(mode, _MODES))
  return mode


@dataclasses.dataclass(frozen=True)
class Found:
  """What is left after a closer look; tensors, all on one device.

  Attributes:
    is_fatal: whether to raise.
    text: what to say then.
    is_dropped: whether something was left out of the sums.
    sums: the sums without it; with "raise" there are none.
  """

  is_fatal: tf.Tensor
  text: tf.Tensor
  is_dropped: tf.Tensor
  sums: list[tf.Tensor]


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
    results = [list(parts) for parts in results]
    sums = finite_sums.Sums(self.total, results, reduce_op)
    with tf.device(self._home):
      odd = self._looks_odd(results)
      if tf.executing_eagerly():
        if not odd:
          return results
        found = self._look(batch, sums)
        if found.is_fatal:
          raise tf.errors.InvalidArgumentError(
              None, None, found.text.numpy().decode())
        return sums.instead(found.sums) if found.is_dropped else results
      found = self._look_if(odd, batch, sums)
      raised = tf.raw_ops.Assert(condition=~found.is_fatal, data=[found.text],
                                 summarize=1)
      with tf.control_dependencies([raised]):
        is_dropped = tf.identity(found.is_dropped)
    if self.mode == "raise":
      with tf.control_dependencies([raised]):
        return [[executor.copy_to([devices.device_of(part)], part)[0]
                 for part in parts] for parts in results]
    return sums.instead_if(is_dropped, found.sums)

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

  def _look_if(self, odd: tf.Tensor, batch: Sequence[Sequence[Any]],
               sums: finite_sums.Sums) -> Found:
    """Looks closer, in a graph, if something looks odd."""

    def look() -> list[Any]:
      found = self._look(batch, sums)
      return [found.is_fatal, found.text, found.is_dropped, *found.sums]

    nothing = sums.nothing() if self.mode == "drop" else []
    is_fatal, text, is_dropped, *rest = tf.cond(
        odd, look, lambda: [False, "", False, *nothing])
    return Found(is_fatal, text, is_dropped, rest)

  def _look(self, batch: Sequence[Sequence[Any]],
            sums: finite_sums.Sums) -> Found:
    """Counts what isn't finite, on each replica's device."""
    counted = []
    for rank, place in enumerate(self.places):
      with tf.device(place):
        counted.append(tf.stack([
            finite_sums.count(executor.as_tensor(finite_sums.dense_part(
                values[rank]), place)) for values in batch]))
    own = tf.stack(counted)
    counts = own if self.gather is None else tf.reshape(
        self.gather(own), [len(self.replicas), len(self.tensors)])
    wrong = counts > 0
    is_dropped = tf.reduce_any(wrong)
    if self.mode == "raise":
      return Found(is_dropped, self._text("", counts), is_dropped, [])
    # A graph's message would have a backslash before an apostrophe.
    is_fatal = tf.reduce_any(tf.reduce_all(wrong, 0))
    told = self._log(~is_fatal & tf.reduce_any(own > 0), own)
    with tf.control_dependencies(told):
      text = self._text("no replica is left to sum: ", counts)
    return Found(is_fatal, text, is_dropped,
                 sums.without(batch, counted, wrong, self.places))

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
