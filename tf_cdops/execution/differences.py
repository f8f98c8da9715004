"""Finds the elements in which replicas' variables differ, and mends them.

Programs of which each has some of the replicas tell each other digests of
parts, and then single parts, so that not much is sent however large a variable
is. All come to the same conclusion.
"""

import base64
import collections
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Bytes of a part; a multiple of every element's.
_PART = 1 << 16
_PARTS_AT_ONCE = 16
_MOST_NAMED = 4  # Variables, and replicas of each, in one message.

# (what this program tells) -> what each tells, in their order.
Tell = Callable[[Any], list[Any]]


@dataclasses.dataclass(frozen=True)
class Copies:
  """A variable: its name, and what this program's replicas have of it."""

  name: str
  copies: tuple[tf.Variable, ...]


@dataclasses.dataclass(frozen=True)
class Difference:
  """A variable in which replicas differ.

  Attributes:
    variable: which.
    first: the number of this program's first replica.
    here: the bytes that each replica of this program has.
    digests: of each replica of all programs, of its bytes' parts.
    reference: a replica that others are compared with: the first of the
      majority, if there is one.
    agreeing: how many replicas have what that one has.
  """

  variable: Copies
  first: int
  here: tuple[bytes, ...]
  digests: tuple[tuple[str, ...], ...]
  reference: int
  agreeing: int

  @property
  def has_majority(self) -> bool:
    return 2 * self.agreeing > len(self.digests)

  @property
  def others(self) -> list[int]:
    """The replicas that have something else than the reference."""
    return [replica for replica, digests in enumerate(self.digests)
            if digests != self.digests[self.reference]]

  def parts(self, replica: int) -> list[int]:
    """Returns the parts in which a replica differs from the reference."""
    return [i for i, (one, other) in enumerate(zip(
        self.digests[replica], self.digests[self.reference], strict=True))
            if one != other]

  def part(self, replica: int, number: int) -> str | None:
    """Returns a part as a text; None if another program has that replica."""
    if not 0 <= replica - self.first < len(self.here):
      return None
    return base64.b64encode(self.here[replica - self.first][
        number * _PART:(number + 1) * _PART]).decode()


def joined(told: Sequence[Sequence[Any]]) -> list[Any]:
  """Returns what all programs told of their replicas, in replica order."""
  return [one for program in told for one in program]


def find(variables: Sequence[Copies], first: int,
         tell: Tell) -> list[Difference]:
  """Returns in which variables replicas differ.

  Args:
    variables: those to look at.
    first: the number of this program's first replica.
    tell: tells other programs.
  """
  found = []
  for variable in variables:
    here = tuple(copy.numpy().tobytes() for copy in variable.copies)
    mine = [[hashlib.blake2b(one[i:i + _PART], digest_size=16).hexdigest()
             for i in range(0, len(one), _PART)] for one in here]
    digests = tuple(map(tuple, joined(tell(mine))))
    (most, count), *rest = collections.Counter(digests).most_common()
    if not rest:
      continue
    reference = digests.index(most) if 2 * count > len(digests) else 0
    found.append(Difference(
        variable, first, here, digests, reference,
        digests.count(digests[reference])))
  return found


def describe(found: Sequence[Difference], labels: Sequence[str],
             tell: Tell) -> str:
  """Names variables, replicas and the first element in which they differ.

  Args:
    found: the differences.
    labels: what each replica is called.
    tell: tells other programs.
  """
  lines = []
  for one in found[:_MOST_NAMED]:
    shape = tuple(one.variable.copies[0].shape)
    dtype = one.variable.copies[0].dtype
    for replica in one.others[:_MOST_NAMED]:
      index, mine, right = _first_element(one, replica, tell)
      lines.append(
          f"{one.variable.name} (shape {shape}, {dtype.name}): "
          f"{labels[replica]} has {mine} in element {index}, where "
          + (f"{one.agreeing} of {len(labels)} replicas have"
             if one.has_majority else f"{labels[one.reference]} has")
          + f" {right}")
    if len(one.others) > _MOST_NAMED:
      lines.append(f"and {len(one.others) - _MOST_NAMED} more replicas differ")
  if len(found) > _MOST_NAMED:
    lines.append(f"and {len(found) - _MOST_NAMED} more variables differ")
  return f"Replicas differ: {'; '.join(lines)}."


def repair(found: Sequence[Difference], tell: Tell) -> None:
  """Copies from the majority to the other replicas, part by part."""
  for one in found:
    mended = {replica: bytearray(one.here[replica - one.first])
              for replica in one.others
              if 0 <= replica - one.first < len(one.here)}
    parts = sorted({i for replica in one.others for i in one.parts(replica)})
    for at in range(0, len(parts), _PARTS_AT_ONCE):
      for number, text in zip(
          parts[at:at + _PARTS_AT_ONCE],
          _told(tell, [one.part(one.reference, number)
                       for number in parts[at:at + _PARTS_AT_ONCE]]),
          strict=True):
        for content in mended.values():
          content[number * _PART:(number + 1) * _PART] = base64.b64decode(text)
    for replica, content in mended.items():
      copy = one.variable.copies[replica - one.first]
      with tf.device(copy.device):
        copy.assign(np.frombuffer(bytes(content), copy.dtype.as_numpy_dtype)
                    .reshape(copy.shape))


def _first_element(one: Difference, replica: int,
                   tell: Tell) -> tuple[tuple[int, ...], str, str]:
  """Returns where a replica first differs, what it has, and the reference."""
  number = one.parts(replica)[0]
  copy = one.variable.copies[0]
  dtype = np.dtype(copy.dtype.as_numpy_dtype)
  mine, right = (np.frombuffer(base64.b64decode(text), np.uint8).reshape(
      -1, dtype.itemsize) for text in _told(tell, [
          one.part(each, number) for each in (replica, one.reference)]))
  at = int(np.flatnonzero(np.any(mine != right, 1))[0])
  index = np.unravel_index(number * _PART // dtype.itemsize + at,
                           tuple(copy.shape))
  return (tuple(map(int, index)), _number(mine[at], dtype),
          _number(right[at], dtype))


def _number(content: np.ndarray, dtype: np.dtype) -> str:
  """Returns a number and its bits, since two may look alike."""
  return (f"{content.copy().view(dtype)[0]} "
          f"(0x{content[::-1].tobytes().hex()})")


def _told(tell: Tell, texts: Sequence[str | None]) -> list[str]:
  """Returns each text from a program that has it."""
  return [next(text for text in everyones if text is not None)
          for everyones in zip(*tell(list(texts)), strict=True)]
