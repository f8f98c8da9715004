"""What a plan uses of the links, and how long that may take."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tf_cdops.explaining import cost
from tf_cdops import errors
from tf_cdops import planning
from tf_cdops import spec as spec_lib
from tf_cdops import topology as topology_lib
from tf_cdops.explaining import usage as usage_lib
from tf_cdops.algorithms import hierarchical
from tf_cdops.algorithms import requirements

# An explanation is of devices that needn't be here, so it takes for granted
# what only a TensorFlow with these devices could tell.
MACHINE = requirements.Machine(has_kernel=lambda op, kind: True,
                                has_virtual_gpus=lambda: False)
# Transfers up to which all of a plan's buckets are added up; beyond, some
# stand for others of about their size. This keeps thousands of devices quick.
EXACT_WORK, COMPARED_WORK = 22_000_000, 500_000
# Bytes an element, by the name of its type.
ITEMSIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2,
    "half": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16}


@dataclasses.dataclass(frozen=True)
class Part:
  """Buckets that go the same way for the same reason.

  Attributes:
    algorithm: what sums them.
    shards: in how many parts.
    why: the reason.
    packed: whether tensors are joined in them.
    buckets: how many there are.
    tensors: the positions of their tensors.
    num_bytes: their size together, on one replica.
    smallest: the least bytes in a bucket.
    largest: the most.
    steps: transfers on the longest chain of one bucket.
    inside: bytes moved between devices of a worker, by all buckets.
    across: bytes moved between workers, by all buckets.
    time: predicted, of all buckets.
    basis: one of usage.BASES: how sure the numbers are.
  """

  algorithm: str
  shards: int
  why: str
  packed: bool
  buckets: int
  tensors: tuple[int, ...]
  num_bytes: int
  smallest: int
  largest: int
  steps: int
  inside: int
  across: int
  time: cost.Time
  basis: str


@dataclasses.dataclass(frozen=True)
class Way:
  """What the same tensors cost by some spec."""

  spec: str
  steps: int
  inside: int
  across: int
  time: cost.Time
  basis: str


class PlanCosts:
  """Plans for some tensors and devices, and adds up what plans use."""

  def __init__(self, topology: topology_lib.Topology, network: cost.Network,
               sizes: Sequence[planning.TensorSize]):
    self.topology, self.network = topology, network
    self._sizes = sizes
    self._period = usage_lib.period(topology)
    self._known: dict[tuple[Any, ...], usage_lib.Usage] = {}

  def plan(self, spec: spec_lib.AllReduceSpec,
           packing: planning.Packing) -> planning.Plan:
    return planning.plan(self._sizes, self.topology, spec, packing,
                         nccl=has_nccl(self.topology))

  def way(self, spec: str, total: usage_lib.Usage) -> Way:
    return Way(spec, total.steps, total.inside, total.across,
               cost.predict(total, self.network), total.basis)

  def of(self, plan: planning.Plan,
         why: Callable[[planning.Bucket], str] = lambda bucket: "",
         work: int = EXACT_WORK
         ) -> tuple[usage_lib.Usage, tuple[Part, ...]]:
    """Returns what a plan uses, and its parts, in the order of buckets."""
    alike = collections.defaultdict(list)
    for bucket in plan.buckets:
      key = bucket.algorithm, bucket.shards, why(bucket), len(
          bucket.tensors) > 1
      alike[key].append(bucket)
    total, parts = usage_lib.none(self.topology), []
    for (name, shards, reason, packed), buckets in alike.items():
      used, steps = self._sum(buckets,
                              work * len(buckets) // len(plan.buckets))
      total = total.after(used)
      sizes = [bucket.num_bytes or 0 for bucket in buckets]
      parts.append(Part(
          name, shards, reason, packed, len(buckets),
          tuple(sorted(i for bucket in buckets for i in bucket.tensors)),
          sum(sizes), min(sizes), max(sizes), steps, used.inside,
          used.across, cost.predict(used, self.network), used.basis))
    return total, tuple(parts)

  def _sum(self, buckets: Sequence[planning.Bucket],
           work: int) -> tuple[usage_lib.Usage, int]:
    """Adds up what buckets use, and returns the most steps of one, too."""
    rows = sorted(buckets, key=lambda bucket: (bucket.num_bytes, bucket.turn))
    most = work // max(1, self._of(rows[len(rows) // 2]).links)
    wanted = min(len(rows), max(1, most))
    edges = [i * len(rows) // wanted for i in range(wanted + 1)]
    total, steps = usage_lib.none(self.topology), 0
    for start, stop in itertools.pairwise(edges):
      one = self._of(rows[(start + stop) // 2])
      steps = max(steps, one.steps)
      if stop - start > 1:
        size = rows[(start + stop) // 2].num_bytes
        alike = sum(bucket.num_bytes or 0 for bucket in rows[start:stop])
        one = one.standing_for(stop - start, alike / size if size else 0)
      total = total.after(one)
    return total, steps

  def _of(self, bucket: planning.Bucket) -> usage_lib.Usage:
    each = itemsize(self._sizes[bucket.tensors[0]].dtype)
    turn = bucket.turn % self._period
    key = bucket.algorithm, bucket.num_bytes, each, bucket.shards, turn
    if key not in self._known:
      self._known[key] = usage_lib.of_all_reduce(
          hierarchical.find(bucket.algorithm), self.topology,
          (bucket.num_bytes or 0) // each, each, bucket.shards, turn)
    return self._known[key]


def can_run(name: str, topology: topology_lib.Topology) -> bool:
  """Whether an algorithm, or pair, can run on such devices."""
  return requirements.unmet(hierarchical.find(name), topology,
                            MACHINE) is None


def has_nccl(topology: topology_lib.Topology) -> bool:
  """Whether NCCL can run there, if TensorFlow has its kernel."""
  return topology.device_types == {"GPU"} and can_run("nccl", topology)


def itemsize(dtype: str, where: str = "dtype") -> int:
  """Returns the bytes of one element of a type."""
  if dtype not in ITEMSIZES:
    raise errors.InputError(
        f"{where} must have a dtype of numbers, and {dtype!r} isn't one."
        f"{errors.did_you_mean(dtype, ITEMSIZES)}")
  return ITEMSIZES[dtype]
