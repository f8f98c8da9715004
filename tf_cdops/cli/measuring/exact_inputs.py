"""What is reduced: small whole numbers, so that every sum is exact."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cdops.cli.measuring import sites
from tf_cdops.planning import planner

# A prime: parts that land in a wrong place can't look right.
_PERIOD = 8191
_LARGEST = 97
# Up to which whole number every one is exact; elsewhere far beyond need.
_EXACT = {"float16": 2**11, "bfloat16": 2**8}


@dataclasses.dataclass(frozen=True)
class Inputs:
  """Variables on a site's devices, and what their sums must be.

  Attributes:
    site: the devices.
    sizes: the tensors.
    variables: for each tensor, one variable for each replica that has some.
  """

  site: sites.Site
  sizes: tuple[planner.TensorSize, ...]
  variables: tuple[tuple[tf.Variable, ...], ...]

  @property
  def num_bytes(self) -> int:
    """The bytes of all tensors, on one replica."""
    return planner.total_bytes(self.sizes)

  @property
  def num_elements(self) -> int:
    return sum(int(np.prod(size.shape)) for size in self.sizes)

  @property
  def largest_sum(self) -> float:
    """The most that any sum of magnitudes can be."""
    return float(_LARGEST * len(self.site.devices))

  def expected(self, tensor: int) -> np.ndarray:
    """Returns the exact sum of a tensor over the replicas."""
    size, replicas = self.sizes[tensor], len(self.site.devices)
    total = sum(_numbers(size.dtype, replica, replicas)
                for replica in range(replicas))
    return _laid_out(total, tensor, size)


def make(site: sites.Site, sizes: Sequence[planner.TensorSize],
         only: Sequence[int] | None = None) -> Inputs:
  """Returns inputs whose every replica and element differs.

  Args:
    site: the devices.
    sizes: the tensors.
    only: the replicas that are to have variables; None for all.
  """
  replicas = len(site.devices)
  variables = []
  for tensor, size in enumerate(sizes):
    row = []
    for replica in range(replicas) if only is None else only:
      numbers = _numbers(size.dtype, replica, replicas)
      with tf.device(site.devices[replica]):
        row.append(tf.Variable(_laid_out(numbers, tensor, size)))
    variables.append(tuple(row))
  return Inputs(site, tuple(sizes), tuple(variables))


@functools.lru_cache(maxsize=256)
def _numbers(dtype: str, replica: int, replicas: int) -> np.ndarray:
  largest = max(1, min(_LARGEST, _EXACT.get(dtype, 2**20) // replicas))
  return np.random.default_rng(replica).integers(1, largest, _PERIOD,
                                                 endpoint=True)


def _laid_out(numbers: Any, tensor: int,
              size: planner.TensorSize) -> np.ndarray:
  """Repeats the numbers over a tensor, each tensor from another start."""
  dtype = tf.as_dtype(size.dtype).as_numpy_dtype
  return np.resize(np.roll(numbers, tensor).astype(dtype), size.shape)
