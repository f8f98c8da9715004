"""What messages call tensors and replicas.

A tensor is called by the variable it belongs to, if that is known.

A batch comes without names: tf.distribute hands over gradients alone. Who knows
the variables says in which order their gradients come, and a batch is known by
its shapes.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib

_MOST = 16  # Lists of variables; a program has few models.


@dataclasses.dataclass(frozen=True)
class _Named:
  """A variable's name and shape."""

  name: str
  shape: tf.TensorShape

  def may_be(self, value: Any) -> bool:
    may_be: bool = self.shape.is_compatible_with(value.shape)
    return may_be


class TensorNames:
  """The names that are known, the latest first."""

  def __init__(self) -> None:
    self._lists: list[tuple[_Named, ...]] = []

  def add(self, variables: Iterable[Any]) -> bool:
    """Makes variables known, in the order of their gradients in a batch.

    Args:
      variables: tf.Variables or Keras' own.

    Returns:
      Whether they weren't.
    """
    given = list(variables)
    for i, variable in enumerate(given):
      if not hasattr(variable, "name") or not hasattr(variable, "shape"):
        raise errors.InputError(
            f"`variables[{i}]` ({variable!r}) must be a variable, with a name "
            "and a shape.")
    named = tuple(_Named(name_of(variable), tf.TensorShape(variable.shape))
                  for variable in given)
    is_new = named not in self._lists
    self._lists = [named, *(known for known in self._lists
                            if known != named)][:_MOST]
    return is_new

  def of_batch(self, batch: Sequence[Any]) -> tuple[str | None, ...]:
    """Returns the name of each tensor; None where it isn't known.

    A batch is the gradients of a list of variables if it has their shapes, in
    order. Some may be missing, as Keras leaves out variables that have no
    gradient, but less than half, and in one way only.

    Args:
      batch: tensors or IndexedSlices, of one replica.
    """
    for named in self._lists:
      if found := _embedded(batch, named):
        return tuple(named[i].name for i in found)
    return (None,) * len(batch)


def name_of(variable: Any) -> str:
  """Returns a variable's name for people: in Keras, that of its layer too."""
  return str(getattr(variable, "path", None)
             or variable.name.removesuffix(":0"))


def labels(batch: Sequence[Any],
           names: Sequence[str | None]) -> list[str]:
  """Returns what messages call each tensor of a batch.

  Args:
    batch: tensors or IndexedSlices, of one replica.
    names: their names; None where one isn't known.
  """
  return [
      f"{f'{name} (' if name else ''}tensor {i} of {len(batch)}"
      f"{', ' if name else ' ('}shape "
      f"{'unknown' if value.shape.rank is None else tuple(value.shape)}, "
      f"{value.dtype.name})"
      for i, (value, name) in enumerate(zip(batch, names, strict=True))]


def replica_labels(topology: topology_lib.Topology) -> list[str]:
  """Returns what messages call each replica."""
  worker = {rank: number for number, ranks in enumerate(topology.workers)
            for rank in ranks}
  return [f"replica {rank} of worker {worker[rank]} ({device})"
          for rank, device in enumerate(topology.devices)]


def _embedded(batch: Sequence[Any],
              named: Sequence[_Named]) -> list[int] | None:
  """Returns which variable each tensor must be; None if it isn't certain."""
  if len(batch) > len(named) or 2 * len(batch) <= len(named):
    return None
  first = _matched(batch, range(len(named)), lambda i, x: named[i].may_be(x))
  last = _matched(batch[::-1], range(len(named))[::-1],
                  lambda i, x: named[i].may_be(x))
  # The leftmost and the rightmost are the same only if there is no other.
  return first if last is not None and first == last[::-1] else None


def _matched(batch: Sequence[Any], candidates: Sequence[int],
             may_be: Callable[[int, Any], bool]) -> list[int] | None:
  """Returns the earliest candidate for each tensor, in order."""
  found = []
  remaining = iter(candidates)
  for value in batch:
    at = next((i for i in remaining if may_be(i, value)), None)
    if at is None:
      return None
    found.append(at)
  return found
