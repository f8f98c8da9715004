"""The tensors to explain for, as users give them."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

from tf_cdops.base import errors
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib


def parse(sizes: Iterable[Any]) -> tuple[planner.TensorSize, ...]:
  """Returns tensors of which each is a number of bytes or (shape, dtype)."""
  if isinstance(sizes, str) or not isinstance(sizes, Iterable):
    raise errors.InputError(
        f"`sizes` ({sizes!r}) must be a list with the bytes, or the (shape, "
        "dtype), of each tensor, such as [1024, 4 << 20].")
  tensors = tuple(map(_size, sizes, itertools.count()))
  if not tensors:
    raise errors.InputError(
        "`sizes` ([]) must have at least one tensor; give its bytes, such as "
        "[1024].")
  return tensors


def _size(given: Any, position: int) -> planner.TensorSize:
  if isinstance(given, int) and not isinstance(given, bool):
    name, num_bytes = "float32", given
    if given < 0 or given % 4:
      raise _wrong(given, position, (
          "the bytes of a float32 tensor, a multiple of 4; give (shape, dtype) "
          "for another type"))
  else:
    try:
      shape, dtype = given
      elements = _product(shape)
    except (TypeError, ValueError, OverflowError):
      raise _wrong(given, position, (
          "a number of bytes, or a pair of a known shape and a dtype, such as "
          "((3, 3, 64), 'float32')")) from None
    name = str(getattr(dtype, "name", dtype))
    if name not in planner.ITEMSIZES:
      near = errors.did_you_mean(name, planner.ITEMSIZES)
      raise _wrong(given, position, (
          f"of a dtype of numbers, and {name!r} isn't one{near and '.'}{near}"))
    num_bytes = elements * planner.ITEMSIZES[name]
  if num_bytes > planner.MOST_BYTES:
    most = spec_lib.format_bytes(planner.MOST_BYTES)
    raise _wrong(given, position, f"at most {most} bytes; cut it in several")
  return planner.TensorSize(name, num_bytes)


def _product(shape: Iterable[Any]) -> int:
  dimensions = [int(dimension) for dimension in shape]
  if min(dimensions, default=0) < 0:
    raise ValueError("a dimension that isn't known")
  return math.prod(dimensions)


def _wrong(given: Any, position: int, rule: str) -> errors.InputError:
  end = "" if rule.endswith("?") else "."
  return errors.InputError(
      f"`sizes[{position}]` ({given!r}) must be {rule}{end}")
