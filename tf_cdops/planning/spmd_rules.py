"""How a batch travels where each worker runs a program of its own.

Inside a worker, anything that is registered may sum. Between programs there
are collective ops alone, in two forms: "collective", TensorFlow's ring, and
"ps", in which each worker sums a part of its own, that all others send to it.
The latter can be encoded by a wire; TensorFlow sums the former out of sight.
"""

import dataclasses
from collections.abc import Sequence

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.planning import packs
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

RING, EXCHANGE = "collective", "ps"
_ARGUMENT = "all_reduce_spec"
# "auto": packs enough that the first is on its way while others are computed,
# and that all lanes are busy. Four packs come from one run: MobileNetV2's
# gradients, four hosts at 1 Gbit/s. None is so small that messages count, each
# of which has a worker's part of it: with 8 hosts, a least pack of 1 MB made
# MobileNetV2 take 1.13 of TensorFlow's time.
_PACKS, _LEAST_MESSAGE = 4, 1 << 20
# The part of a batch that is made last, and travels when all is computed.
_TAIL = 1 / 16
# Of a batch that is one tensor. With 8 hosts at 1 Gbit/s and 16 MB, two took
# 1.22 of TensorFlow's time, and four, in two runs, 1.05 and 1.11.
_SHARDS, _LEAST_SHARD = 4, 1 << 20


def resolve(spec: spec_lib.AllReduceSpec, num_workers: int, *, nccl: bool,
            wire: registry.Wire | None) -> spec_lib.AllReduceSpec:
  """Returns the pairs of algorithms that a spec stands for here.

  Args:
    spec: names for each size what sums inside a worker, or a pair of that and
      of "collective" or "ps". "collective" alone is TensorFlow's ring over all
      devices of all workers.
    num_workers: how many programs.
    nccl: whether NCCL can run inside a worker; "auto" asks.
    wire: how messages between workers are encoded.

  Raises:
    SpecError: for a pair of another kind.
  """
  if spec.is_auto:
    lines = [spec_lib.AllReduceSpecTuple("nccl" if nccl else "ps", 1, -1)]
  else:
    lines = list(spec)
  return spec.with_lines(planner.parse_all_reduce_spec(
      [_resolved(line, num_workers, wire) for line in lines]))


def _resolved(line: spec_lib.AllReduceSpecTuple, num_workers: int,
              wire: registry.Wire | None) -> spec_lib.AllReduceSpecTuple:
  intra, _, inter = line.alg.partition("/")
  if line.alg == RING:
    if wire is None:
      return line
    raise errors.SpecError(
        f"`{_ARGUMENT}` ({RING!r}) must be something else with a `wire` "
        f"({str(wire)!r}): TensorFlow's ring sends what it sums as it is; use "
        "'auto', or 'ps'.")
  inter = inter or (EXCHANGE if wire else RING)
  if inter not in (RING, EXCHANGE) or intra == RING:
    raise errors.SpecError(
        f"`{_ARGUMENT}` ({line.alg!r}) must be what sums inside a worker, or a "
        f"pair of it and {RING!r} or {EXCHANGE!r}: between programs there are "
        "collective ops alone. Use 'auto', or `multi_worker_strategy`, which "
        "has any algorithm between workers.")
  if wire and inter == RING:
    raise errors.SpecError(
        f"`{_ARGUMENT}` ({line.alg!r}) must not be with {RING!r} where there "
        f"is a `wire` ({str(wire)!r}): TensorFlow's ring sends what it sums "
        f"as it is; use '{intra}/{EXCHANGE}'.")
  shards = line.shards
  if inter == EXCHANGE:  # Each worker has the same number of parts.
    shards = num_workers * -(-shards // num_workers)
  return spec_lib.AllReduceSpecTuple(f"{intra}/{inter}", shards, line.limit)


def alternatives(topology: topology_lib.Topology, names: Sequence[str],
                 wire: registry.Wire | None) -> list[spec_lib.AllReduceSpec]:
  """Returns the ways there are, for `explain` to compare.

  Args:
    topology: the devices of all programs.
    names: of algorithms, any of which may sum inside a worker.
    wire: how messages are encoded.
  """
  several = len(topology.devices) > len(topology.workers)
  inside = [name for name in names if name != RING] if several else [EXCHANGE]
  texts = [f"{name}/{inter}" for name in inside
           for inter in ((EXCHANGE,) if wire else (RING, EXCHANGE))]
  if several and not wire:
    texts.append(RING)
  return [resolve(spec_lib.parse(text, _ARGUMENT), len(topology.workers),
                  nccl=False, wire=wire) for text in texts]


def packing(sizes: Sequence[planner.TensorSize], num_workers: int,
            bytes_per_pack: int | None) -> packs.Packing:
  """Returns how tensors are packed: by the user's number, or as "auto" does."""
  total = planner.total_bytes(sizes)
  if bytes_per_pack:
    return packs.Packing(num_packs=1, cap=bytes_per_pack)
  return packs.Packing(
      num_packs=1, cap=max(num_workers * _LEAST_MESSAGE, -(-total // _PACKS)),
      tail=max(num_workers * _LEAST_MESSAGE, int(total * _TAIL)))


def sharded(plan: planner.Plan, sizes: Sequence[planner.TensorSize],
            num_workers: int) -> planner.Plan:
  """Returns the plan with large buckets in shards, unless the spec says so.

  A batch of one large tensor, and perhaps some small ones, has too few packs
  for all lanes: a cable would be idle while that one is summed.

  Args:
    plan: of a resolved spec.
    sizes: the batch.
    num_workers: how many programs.
  """
  part = max(_LEAST_SHARD, -(-planner.total_bytes(sizes) // _SHARDS))
  buckets = []
  for bucket in plan.buckets:
    ways = num_workers if bucket.algorithm.endswith(f"/{EXCHANGE}") else 1
    if bucket.shards == ways and bucket.num_bytes:
      times = max(1, bucket.num_bytes // part)
      bucket = bucket._replace(shards=times * ways)
    buckets.append(bucket)
  return dataclasses.replace(plan, buckets=tuple(buckets))
