"""How many nodes an all-reduce has, from the code that emits it.

For p devices of one worker, float32 tensors, each of at least p elements a
shard:

  "auto", a tensor too large to pack: p. One sum, and p - 1 copies.
  "auto", a pack of tensors of one shape: 3p. On each device they are joined
    and parted; one sum, and p - 1 copies.
  "auto", another pack, with r tensors that aren't vectors: p(2r + 3). Those
    are made flat, and given their shapes back.
  Each of these: 1 more if p > 2. It keeps the sum from being rewritten.
  "xring" in s shards, a matrix: 2p(p - 1)s + 2ps + 2p, and 2p more if s > 1.
    Sums and copies round the ring; on each device each shard is parted and
    joined; flat and back; and parted into shards and joined again.

Besides, each device has one constant for each value that those ops share: the
axis, each list of lengths, "flat", and each shape.
"""

import math
from collections.abc import Sequence

from tf_cdops.base import topology as topology_lib
from tf_cdops.fabric import base
from tf_cdops.planning import auto_rules
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

_AXIS, _FLAT = "axis", "flat"


def predict(spec: str, sizes: Sequence[planner.TensorSize],
            devices: int) -> int:
  """Returns the number of nodes of "auto", "xring" or "xring#shards"."""
  if spec == spec_lib.AUTO:
    return _auto(sizes, devices)
  line, = spec_lib.parse(spec)
  assert line.alg == "xring", "the only one with a formula here"
  return _xring(sizes, devices, line.shards)


def _auto(sizes: Sequence[planner.TensorSize], p: int) -> int:
  topology = topology_lib.Topology.grid(1, p)
  small = [size for size in sizes if auto_rules.rule_for(
      size.num_bytes, topology, nccl=False).pack]
  assert planner.total_bytes(small) <= planner.DEFAULT_CAP
  guard = 1 if p > 2 else 0
  nodes = (p + guard) * (len(sizes) - len(small))
  if len(small) < 2:
    return nodes + (p + guard) * len(small)
  nodes += guard
  if len({size.shape for size in small}) == 1:
    return nodes + 3 * p
  reshaped = [size.shape for size in small if len(size.shape) != 1]
  constants: set[object] = {_AXIS, *reshaped, *([_FLAT] if reshaped else [])}
  constants |= _lengths([math.prod(size.shape) for size in small])
  return nodes + p * (2 * len(reshaped) + 3) + p * len(constants)


def _xring(sizes: Sequence[planner.TensorSize], p: int, s: int) -> int:
  nodes = 0
  constants: set[object] = {_AXIS}
  for size in sizes:
    nodes += 2 * p * (p - 1) * s + 2 * p * s + (2 * p if s > 1 else 0)
    if len(size.shape) != 1:
      nodes += 2 * p
      constants |= {_FLAT, size.shape}
    shards = base.part_lengths(math.prod(size.shape), s)
    for lengths in (shards, *(base.part_lengths(n, p) for n in shards)):
      constants |= _lengths(lengths)
  return nodes + p * len(constants)


def _lengths(lengths: Sequence[int]) -> set[object]:
  """Equal lengths need no constant: Split takes a number."""
  return {tuple(lengths)} if len(set(lengths)) > 1 else set()
