"""Compares what replicas have of mirrored variables, to the last bit.

Nothing here is a reduction of tf.distribute's, so that it sees what bypassed
one. While replicas agree, each device makes a few numbers of all variables, and
these are all that leaves it.
"""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.base import topology as topology_lib
from tf_cdops.execution import differences
from tf_cdops.execution import tensor_names

_TOGETHER = 1 << 18  # Elements.
_WITHOUT_BITS = (tf.string, tf.resource, tf.variant)


class Agreement:
  """Compares the same variables time and again."""

  def __init__(self, variables: Iterable[Any]):
    """Initializes.

    Args:
      variables: mirrored variables of one strategy, tf.Variables or Keras'
        own. Those with a value on each replica, as of metrics, and those that
        aren't mirrored are left out.

    Raises:
      ValueError: if something is no variable, or strategies differ.
    """
    self._variables: list[differences.Copies] = []
    strategies = []
    for i, variable in enumerate(variables):
      mirrored = _unwrapped(variable, f"variables[{i}]")
      if (isinstance(mirrored, tf.distribute.DistributedValues)
          and mirrored.synchronization
          != tf.VariableSynchronization.ON_READ):
        if mirrored.dtype in _WITHOUT_BITS:
          raise errors.InputError(
              f"`variables[{i}]` ({tensor_names.name_of(variable)}) must have "
              f"numbers, and is of {mirrored.dtype.name}; leave it out.")
        self._variables.append(differences.Copies(
            tensor_names.name_of(variable), tuple(mirrored.values)))
        strategies.append(mirrored.distribute_strategy)
    if any(one is not strategies[0] for one in strategies):
      raise errors.InputError(
          "`variables` must be of one strategy; compare those of another by "
          "themselves.")
    # One program that drives all replicas has nobody to ask.
    self._tell: differences.Tell = getattr(
        strategies[0] if strategies else None, "tell_others",
        lambda mine: [mine])
    self._groups = _groups([one.copies[0] for one in self._variables])
    # Tracing is most of what a first check takes: all replicas share one.
    self._of_replica = tf.function(self._emit_replica, autograph=False)
    self._checksums = tf.function(self._emit, autograph=False)

  def check(self, repair: bool = False) -> str:
    """Compares; with SpmdStrategy, all programs must call it.

    Args:
      repair: whether replicas get what a strict majority of them has.

    Returns:
      What was repaired, in words; nothing if there was nothing.

    Raises:
      ReplicasDifferError: if replicas differ, and aren't repaired.
    """
    if not self._variables:
      return ""
    suspects = self._suspects()
    if not suspects:
      return ""
    first, labels = self._replicas()
    found = differences.find([self._variables[i] for i in suspects], first,
                             self._tell)
    if not found:
      return ""
    text = differences.describe(found, labels, self._tell)
    if not repair or not all(one.has_majority for one in found):
      raise errors.ReplicasDifferError(text + (
          " This can't be repaired, since no strict majority agrees."
          if repair else ""))
    differences.repair(found, self._tell)
    return text

  def _replicas(self) -> tuple[int, list[str]]:
    """Returns the number of the first replica here, and what all are called."""
    mine = secrets.token_hex(8)
    told = self._tell(
        [mine, [copy.device for copy in self._variables[0].copies]])
    rank = [token for token, _ in told].index(mine)
    everyones = [names for _, names in told]
    return (len(differences.joined(everyones[:rank])),
            tensor_names.replica_labels(topology_lib.Topology.from_devices(
                differences.joined(everyones))))

  def _emit(self) -> list[tf.Tensor]:
    """Returns, of each replica here, a checksum for each group."""
    results = []
    for copies in zip(*(one.copies for one in self._variables), strict=True):
      with tf.device(copies[0].device):
        results.append(self._of_replica([copy.handle for copy in copies]))
    return results

  def _emit_replica(self, handles: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns a checksum for each group, of one replica's variables."""
    alike = [one.copies[0] for one in self._variables]
    return tf.stack([
        _checksum([handles[i] for i in group], [alike[i] for i in group])
        for group in self._groups])

  def _suspects(self) -> list[int]:
    """Returns in which variables some replicas may differ."""
    # To optimize it takes longer, the first time, than it ever saves.
    with tf_compat.unoptimized():
      sums = [one.numpy() for one in self._checksums()]
    told = differences.joined(self._tell(
        [hashlib.blake2b(one.tobytes(), digest_size=16).hexdigest()
         for one in sums]))
    if len(set(told)) == 1:
      return []
    every = np.array(differences.joined(
        self._tell([one.tolist() for one in sums])))
    return sorted(
        i for number in np.flatnonzero(np.any(every != every[:1], 0))
        for i in self._groups[number])


def _groups(variables: Sequence[tf.Variable]) -> list[list[int]]:
  """Returns which variables have a checksum together: small ones, by size.

  A function of few ops is quicker to trace, and to run.
  """
  groups: list[list[int]] = []
  open_groups: dict[tf.DType, tuple[list[int], int]] = {}
  for i, variable in enumerate(variables):
    dtype, size = variable.dtype, variable.shape.num_elements()
    group, before = open_groups.get(dtype, ([], 0))
    if not group or before + size > _TOGETHER:
      group, before = [], 0
      groups.append(group)
    group.append(i)
    open_groups[dtype] = group, before + size
  return groups


def _unwrapped(variable: Any, argument: str) -> Any:
  """Returns TensorFlow's variable of Keras' own."""
  if not isinstance(variable, tf.Variable):
    variable = getattr(variable, "value", None)
  if not isinstance(variable, tf.Variable):
    raise errors.InputError(
        f"`{argument}` ({variable!r}) must be a variable, of TensorFlow or "
        "Keras.")
  return variable


def _checksum(handles: Sequence[tf.Tensor],
              variables: Sequence[tf.Variable]) -> tf.Tensor:
  """Returns an int64 that tells the bits of variables from others.

  Each word of up to 32 bits is multiplied by an odd number of its own, modulo
  2**64: so one changed element, two changed bits, or two elements that have
  changed places, always change it.

  Args:
    handles: of the variables.
    variables: of one type, with as many elements, on whichever replica.
  """
  dtype, flat = variables[0].dtype, tf.constant([-1])
  values = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
            for handle in handles]
  vectors = [value if value.shape.rank == 1 else
             tf.raw_ops.Reshape(tensor=value, shape=flat) for value in values]
  vector = vectors[0] if len(vectors) == 1 else tf.concat(vectors, 0)
  word = _word(dtype)
  words = tf.reshape(
      (tf.cast if dtype == tf.bool else tf.bitcast)(vector, word), flat)
  count = (sum(variable.shape.num_elements() for variable in variables)
           * max(1, dtype.size // word.size))
  return tf.reduce_sum(tf.cast(words, tf.int64) * tf.range(
      1, 2 * count + 1, 2, tf.int64))


def _word(dtype: tf.DType) -> tf.DType:
  """Returns the integers that a type's bits are taken for."""
  return {1: tf.int8, 2: tf.int16}.get(dtype.size, tf.int32)
