"""Runs an algorithm without TensorFlow, to prove it and to count its cost.

A traced value is a row of segments. A segment is a range of elements of the
vector and the expression that gives them, such as (replica 0 + replica 2).
Expressions are kept once and known by number, so that two devices hold the
same bits exactly if their segments are equal.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from tf_cdops.base import errors
from tf_cdops.fabric import base


class Segment(NamedTuple):
  """Elements start to stop (exclusive) of the vector, as one expression."""

  start: int
  stop: int
  expression: int


@dataclasses.dataclass(frozen=True, eq=False)
class TracedValue:
  """A value, where it is, and after how many steps it is there.

  As a message, it has the codec that made it.
  """

  place: str
  segments: tuple[Segment, ...]
  step: int
  codec: base.Codec | None = None

  @property
  def length(self) -> int:
    return sum(s.stop - s.start for s in self.segments)


@dataclasses.dataclass(frozen=True)
class Transfer:
  """Elements that went from one device to another in a step."""

  step: int
  source: str
  target: str
  segments: tuple[Segment, ...]
  codec: base.Codec | None = None

  @property
  def elements(self) -> int:
    return sum(s.stop - s.start for s in self.segments)

  def num_bytes(self, itemsize: int) -> int:
    """Returns the bytes on the way, of elements of so many bytes each."""
    if self.codec is None:
      return self.elements * itemsize
    return int(self.codec.num_bytes(self.elements, itemsize))


@dataclasses.dataclass(frozen=True)
class Addition:
  """A sum that a device made, ready after `step` steps."""

  step: int
  place: str
  operands: int
  segments: tuple[Segment, ...]

  @property
  def elements(self) -> int:
    return sum(s.stop - s.start for s in self.segments)


@dataclasses.dataclass(frozen=True)
class NativeStep:
  """An all-reduce by an engine of TensorFlow's: opaque, so only modelled."""

  step: int
  engine: str
  places: tuple[str, ...]
  segments: tuple[Segment, ...]

  @property
  def elements(self) -> int:
    return sum(s.stop - s.start for s in self.segments)

  @property
  def moved(self) -> int:
    """Elements moved, modelled as a ring's."""
    return 2 * (len(self.places) - 1) * self.elements


class TracingFabric:
  """Records every transfer and addition, and what each value consists of."""

  def __init__(self) -> None:
    self.transfers: list[Transfer] = []
    self.additions: list[Addition] = []
    self.native_steps: list[NativeStep] = []
    self._arrivals: dict[tuple[int, str], TracedValue] = {}
    self._kept: list[TracedValue] = []  # Holds ids in _arrivals valid.
    self._numbers: dict[tuple, int] = {}  # What an expression is -> number.
    self._replicas: list[int] = []  # Number -> its replicas, a bit each.
    self._roundings: list[int] = []  # Number -> of a term, on its way there.
    self._rounded: dict[int, base.Codec] = {}  # Number -> by whom it was last.

  @property
  def moved(self) -> int:
    """Elements that changed device so far; native steps as modelled."""
    return (sum(transfer.elements for transfer in self.transfers)
            + sum(step.moved for step in self.native_steps))

  def replica(self, number: int, length: int, place: str) -> TracedValue:
    """Returns the value that replica `number` starts with."""
    leaf = self._expression(("replica", number), 1 << number)
    return TracedValue(place, _merged([Segment(0, length, leaf)]), 0)

  @property
  def replicas(self) -> tuple[int, ...]:
    """For each expression the replicas that it sums, a bit each."""
    return tuple(self._replicas)

  def replicas_of(self, expression: int) -> int:
    """Returns the replicas that an expression sums, a bit each."""
    return self._replicas[expression]

  def roundings_of(self, expression: int) -> int:
    """Returns how often a term of an expression was rounded, at most."""
    return self._roundings[expression]

  def split(self, value: TracedValue, count: int) -> list[TracedValue]:
    parts, start = [], 0
    for length in base.part_lengths(value.length, count):
      parts.append(dataclasses.replace(
          value, segments=_cut(value.segments, start, start + length)))
      start += length
    return parts if count > 1 else [value]

  def concat(self, parts: Sequence[TracedValue], place: str) -> TracedValue:
    here = [self.copy(part, place) for part in parts]
    return TracedValue(place, _merged([s for p in here for s in p.segments]),
                       max(part.step for part in here))

  def add(self, values: Sequence[TracedValue], place: str, *,
          in_order: bool = False) -> TracedValue:
    del in_order  # A trace keeps the order that it is given.
    here = [self.copy(value, place) for value in values]
    if len(here) == 1:
      return here[0]
    segments = []
    for aligned in _aligned(here):
      number = self._sum([s.expression for s in aligned], aligned[0])
      segments.append(aligned[0]._replace(expression=number))
    total = TracedValue(place, _merged(segments),
                        max(value.step for value in here))
    if total.length:
      self.additions.append(
          Addition(total.step, place, len(here), total.segments))
    return total

  def copy(self, value: TracedValue, place: str) -> TracedValue:
    if value.place == place:
      return value
    if not value.length:
      return dataclasses.replace(value, place=place, step=0)
    # A tensor goes to a device once, however many ops there use it.
    arrived = self._arrivals.get((id(value), place))
    if arrived is None:
      arrived = dataclasses.replace(value, place=place, step=value.step + 1)
      self._arrivals[id(value), place] = arrived
      self._kept.append(value)
      self.transfers.append(
          Transfer(arrived.step, value.place, place, value.segments,
                   value.codec))
    return arrived

  def encode(self, value: TracedValue, codec: base.Codec) -> TracedValue:
    return dataclasses.replace(value, codec=codec, segments=_merged([
        segment._replace(expression=self._round(segment.expression, codec))
        for segment in value.segments]))

  def decode(self, message: TracedValue, codec: base.Codec,
             like: TracedValue) -> TracedValue:
    del like
    if message.codec is not codec:
      raise errors.ProofError(
          f"a message of {message.codec} is decoded by {codec.name}.")
    return dataclasses.replace(message, codec=None)

  def _round(self, expression: int, codec: base.Codec) -> int:
    """Returns the expression that a message of one has.

    To encode what was decoded from a message is exact, if the codec says so.
    """
    if self._rounded.get(expression) is codec and codec.is_exact_again:
      return expression
    # Each message of its own: another one's blocks may begin elsewhere.
    form = ("rounded", codec.name, expression) + (
        () if codec.is_exact_again else (len(self._replicas),))
    number = self._expression(form, self._replicas[expression],
                              self._roundings[expression] + 1)
    self._rounded[number] = codec
    return number

  def native_all_reduce(self, engine: str, values: Sequence[TracedValue],
                        group: base.Group) -> list[TracedValue]:
    if not values[0].length:
      return list(values)
    step = 1 + max(value.step for value in values)
    segments = []
    for aligned in _aligned(values):
      number = self._sum([s.expression for s in aligned], aligned[0])
      segments.append(aligned[0]._replace(expression=number))
    self.native_steps.append(
        NativeStep(step, engine, group.places, tuple(segments)))
    return [TracedValue(place, tuple(segments), step)
            for place in group.places]

  def _sum(self, expressions: Sequence[int], where: Segment) -> int:
    replicas = 0
    for number in expressions:
      twice = replicas & self._replicas[number]
      if twice:
        raise errors.ProofError(
            f"elements {where.start} to {where.stop} of replica "
            f"{twice.bit_length() - 1} are added twice.")
      replicas |= self._replicas[number]
    return self._expression(("sum", *expressions), replicas,
                            max(self._roundings[n] for n in expressions))

  def _expression(self, form: tuple, replicas: int, roundings: int = 0) -> int:
    number = self._numbers.setdefault(form, len(self._replicas))
    if number == len(self._replicas):
      self._replicas.append(replicas)
      self._roundings.append(roundings)
    return number


def _merged(segments: Sequence[Segment]) -> tuple[Segment, ...]:
  """Joins neighbours that continue each other, and drops empty segments."""
  merged: list[Segment] = []
  for segment in segments:
    if segment.start == segment.stop:
      continue
    last = merged[-1] if merged else None
    if (last and last.stop == segment.start
        and last.expression == segment.expression):
      merged[-1] = last._replace(stop=segment.stop)
    else:
      merged.append(segment)
  return tuple(merged)


def _cut(segments: Sequence[Segment], start: int,
         stop: int) -> tuple[Segment, ...]:
  """Returns the elements at positions start to stop of a row of segments."""
  cut, position = [], 0
  for segment in segments:
    length = segment.stop - segment.start
    first = max(start - position, 0)
    last = min(stop - position, length)
    if first < last:
      cut.append(segment._replace(start=segment.start + first,
                                  stop=segment.start + last))
    position += length
  return tuple(cut)


def _aligned(values: Sequence[TracedValue]) -> list[list[Segment]]:
  """Cuts all values at the same positions; they must hold the same elements.

  Returns:
    A row for each stretch of elements, in it one segment a value.
  """
  if len({value.length for value in values}) > 1:
    raise errors.ProofError(
        f"values of {[value.length for value in values]} elements are added.")
  cuts = {0}
  for value in values:
    position = 0
    for segment in value.segments:
      position += segment.stop - segment.start
      cuts.add(position)
  edges = sorted(cuts)
  rows = [[_cut(value.segments, start, stop)[0] for value in values]
          for start, stop in itertools.pairwise(edges)]
  for row in rows:
    for segment in row:
      if segment.start != row[0].start:
        raise errors.ProofError(
            f"element {segment.start} is added to element {row[0].start}.")
  return rows
