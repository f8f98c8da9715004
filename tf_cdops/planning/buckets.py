"""What a plan is made of: tensors, and the buckets in which they travel."""

import dataclasses
import math
from collections.abc import Collection, Iterable
from typing import NamedTuple, cast

# Bytes an element, by the name of its type.
ITEMSIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2,
    "half": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16}
# The most bytes of a tensor; beyond, a number was mistyped.
MOST_BYTES = 1 << 40


@dataclasses.dataclass(frozen=True)
class TensorSize:
  """A tensor to plan for.

  Attributes:
    dtype: the name of its type.
    num_bytes: None if its shape isn't known.
    shape: for those who make the tensor; a plan doesn't ask.
  """

  dtype: str
  num_bytes: int | None
  shape: tuple[int, ...] = ()

  @classmethod
  def from_shape(cls, shape: tuple[int, ...], dtype: str) -> "TensorSize":
    return cls(dtype, math.prod(shape) * ITEMSIZES[dtype], shape)


def total_bytes(sizes: Iterable[TensorSize]) -> int:
  """Returns the bytes of all tensors whose size is known."""
  return sum(size.num_bytes or 0 for size in sizes)


class Bucket(NamedTuple):  # A plan makes hundreds, in a third of the time.
  """Tensors that travel as one.

  Attributes:
    tensors: their positions in what was planned for.
    algorithm: the name of what sums them.
    shards: in how many parts.
    rotation: the number of the first shard, by which roles rotate: chosen so
      that each device has about as many bytes to do.
    num_bytes: their size together, None if it isn't known.
    wired: whether messages are encoded, by the plan's wire.
  """

  tensors: tuple[int, ...]
  algorithm: str
  shards: int
  rotation: int
  num_bytes: int | None
  wired: bool = False


def bytes_together(known: Collection[int | None]) -> int | None:
  """Returns the bytes of a bucket; None if a tensor's aren't known."""
  return None if None in known else sum(cast(Collection[int], known))
