"""wired: an algorithm whose messages are encoded."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from tf_cdops.base import errors
from tf_cdops.fabric import base
from tf_cdops.registry import algorithm as algorithm_lib
from tf_cdops.registry import traffic as traffic_lib
from tf_cdops.registry import wire as wire_lib

Algorithm = algorithm_lib.Algorithm


@functools.lru_cache(maxsize=256)
def wired(algorithm: Algorithm, wire: wire_lib.Wire) -> Algorithm:
  """Returns an algorithm that sends the same in fewer bytes.

  A message is encoded where it leaves and decoded where it arrives, and sums
  are made of what was decoded. The result is rounded once, by whoever adds the
  last term: it, too, goes on with what others decode, so that all have the
  same bits.

  Args:
    algorithm: what sums.
    wire: how messages are encoded, and which.

  Raises:
    AlgorithmError: if one of TensorFlow's engines sends them.
  """
  if not can_be_wired(algorithm, wire):
    raise errors.AlgorithmError(
        f"`wire` ({str(wire)!r}) can't be had with {algorithm.name!r}: there "
        "TensorFlow's own engine sends what it sums as it is; use 'auto' or "
        "'ps', or 'nccl/ps' where workers have GPUs.")

  def all_reduce(fabric: base.Fabric, values: Sequence[Any],
                 group: base.Group) -> list[Any]:
    wired_fabric = _Wired(fabric, wire, group, algorithm.name)
    results = algorithm.all_reduce(
        wired_fabric, [_Value(value, 1 << i) for i, value in enumerate(values)],
        group)
    return [result.value for result in results]

  def traffic(length: int, group: base.Group) -> traffic_lib.Traffic:
    assert algorithm.traffic is not None
    own = algorithm.traffic(length, group)
    return dataclasses.replace(
        own, down=tuple(dataclasses.replace(p, wire=wire) for p in own.down),
        up=tuple(dataclasses.replace(p, wire=wire) for p in own.up))

  return dataclasses.replace(
      algorithm, all_reduce=all_reduce, wire=wire,
      traffic=traffic if algorithm.traffic else None,
      reduce_scatter=None, all_gather=None, reduce=None, broadcast=None,
      part=wired(algorithm.part, wire) if algorithm.part else None)


def can_be_wired(algorithm: Algorithm, wire: wire_lib.Wire) -> bool:
  """Whether all that a wire is for is sent by copies, and not by an engine."""
  if wire.scope == "all" or algorithm.pair is None:
    return not algorithm.modelled
  return not algorithm.pair[1].modelled


def is_rounded_least(algorithm: Algorithm, wire: wire_lib.Wire) -> bool:
  """Whether a wire rounds each term once, and the sum once, and no more."""
  if wire.scope == "all" or algorithm.pair is None:
    return algorithm.in_order
  return algorithm.pair[1].in_order


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Value:
  """A value, and what a wire has to know of it.

  Attributes:
    value: the fabric's.
    replicas: those that it sums, a bit each.
    message: what it was decoded from, where it is; None if it wasn't.
  """

  value: Any
  replicas: int
  message: Any = None

  @property
  def place(self) -> str:
    place: str = self.value.place
    return place

  @property
  def length(self) -> int | None:
    length: int | None = self.value.length
    return length


class _Wired:
  """A fabric whose messages are encoded, for one all-reduce."""

  def __init__(self, fabric: Any, wire: wire_lib.Wire, group: base.Group,
               name: str):
    self._fabric, self._codec, self._name = fabric, wire.codec, name
    self._everyone = (1 << len(group.places)) - 1
    # Between which places messages are encoded: those with different keys.
    self._keys: dict[str, Any] = {
        host: w for w, host in reversed([*enumerate(group.hosts)])}
    for w, ranks in enumerate(group.workers):
      for rank in ranks:
        self._keys[group.places[rank]] = w
    if wire.scope == "all":
      self._keys = {place: place for place in self._keys}
    # What has been sent, and to where, beside it: that holds the ids valid.
    self._sent: dict[int, tuple[_Value, Any]] = {}
    self._arrived: dict[tuple[int, str], tuple[_Value, _Value]] = {}

  def split(self, value: _Value, count: int) -> list[_Value]:
    if count == 1:
      return [value]
    return [_Value(part, value.replicas)
            for part in self._fabric.split(value.value, count)]

  def concat(self, parts: Sequence[_Value], place: str) -> _Value:
    here = [self._decoded(part, place) for part in parts]
    replicas = self._everyone
    for part in here:
      if part.length != 0:
        replicas &= part.replicas
    return _Value(self._fabric.concat([part.value for part in here], place),
                  replicas)

  def add(self, values: Sequence[_Value], place: str, *,
          in_order: bool = False) -> _Value:
    if len(values) == 1:
      return self.copy(values[0], place)
    here = [self._decoded(value, place) for value in values]
    total = self._fabric.add([value.value for value in here], place,
                             in_order=in_order)
    replicas = 0
    for value in here:
      replicas |= value.replicas
    if replicas != self._everyone:
      return _Value(total, replicas)
    message = self._fabric.encode(total, self._codec)
    return _Value(self._fabric.decode(message, self._codec, total), replicas,
                  message)

  def copy(self, value: _Value, place: str) -> _Value:
    if value.place == place:
      return value
    if self._keys[value.place] == self._keys[place]:
      return _Value(self._fabric.copy(value.value, place), value.replicas)
    if (id(value), place) not in self._arrived:
      message = self._fabric.copy(self._message(value), place)
      self._arrived[id(value), place] = value, _Value(
          self._fabric.decode(message, self._codec, value.value),
          value.replicas, message)
    return self._arrived[id(value), place][1]

  def _decoded(self, value: _Value, place: str) -> _Value:
    """Returns what needs no message to get there as it is."""
    return (value if self._keys[value.place] == self._keys[place]
            else self.copy(value, place))

  def native_all_reduce(self, engine: str, values: Sequence[_Value],
                        group: base.Group) -> list[_Value]:
    sums = self._fabric.native_all_reduce(
        engine, [value.value for value in values], group)
    replicas = 0
    for value in values:
      replicas |= value.replicas
    return [_Value(total, replicas) for total in sums]

  def _message(self, value: _Value) -> Any:
    """Returns a value's message, which is made once."""
    if value.message is not None:
      return value.message
    if id(value) not in self._sent:
      if (value.replicas == self._everyone and value.length != 0
          and not self._codec.is_exact_again):
        raise errors.AlgorithmError(
            f"`wire` ({self._codec.name!r}) can't be had with {self._name!r} "
            "on these devices: it joins sums, or passes them on inside a "
            "worker, before it sends them to others, so that they would be "
            "rounded twice; use 'auto', 'ps', 'ps/ps' or 'ps/xring', or the "
            "wire 'bfloat16'.")
      self._sent[id(value)] = value, self._fabric.encode(value.value,
                                                         self._codec)
    return self._sent[id(value)][1]
