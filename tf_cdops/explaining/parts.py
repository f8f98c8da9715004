"""The parts of a plan and the other choices, with what each costs."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.cost import usage
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib
from tf_cdops.registry import proof
from tf_cdops.registry import requirements
from tf_cdops.registry import wiring

# An explanation is of devices that needn't be here, so it takes for granted
# what only a TensorFlow with these devices could tell.
MACHINE = requirements.Machine(has_kernel=lambda op, kind: True,
                               has_virtual_gpus=lambda: False)


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
    steps: transfers on the critical path of one bucket.
    inside: bytes moved between devices of a worker, by all buckets.
    across: bytes moved between workers, by all buckets.
    time: predicted, of all buckets.
    basis: one of usage.BASES: how sure the numbers are.
    wire: how messages are encoded; None for as they are.
    roundings: how often a term is rounded for that, at most; None if that
      isn't known.
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
  wire: str | None = None
  roundings: int | None = 0


@dataclasses.dataclass(frozen=True)
class SpecCost:
  """What the same tensors cost by some spec."""

  spec: str
  steps: int
  inside: int
  across: int
  time: cost.Time
  basis: str


class PlanCosts:
  """Plans for some tensors and devices, and says what plans cost."""

  def __init__(self, model: cost.Model, sizes: Sequence[planner.TensorSize],
               packing: planner.Packing | None = None,
               wire: registry.Wire | None = None,
               backward_seconds: float | None = None):
    self.model, self.wire = model, wire
    self._sizes, self._packing = sizes, packing
    self._backward_seconds = backward_seconds

  def plan(self, spec: spec_lib.AllReduceSpec) -> planner.Plan:
    return planner.plan(
        self._sizes, self.model.topology, spec, self._packing,
        requirements.nccl_can_run(self.model.topology, MACHINE),
        self.model.network, self.wire, self._backward_seconds)

  def spec_cost(self, spec: str, plan: planner.Plan) -> SpecCost:
    """Returns what a plan costs."""
    return _named(spec, self._cost(plan))

  def spec_costs(self, names: Iterable[str]) -> list[SpecCost]:
    """Returns what each algorithm costs if all tensors go by it.

    The buckets are the same for all of them, and for all pairs.
    """
    plans = {pair: self.plan(spec_lib.parse("ps/ps" if pair else "ps"))
             for pair in (False, True)}
    batches = {pair: planner.all_reduces(plan, self._sizes)
               for pair, plan in plans.items()}
    found = []
    for name in names:
      algorithm = registry.lookup(name, 1)
      coded = (registry.wired(algorithm, self.wire) if self.wire
               and wiring.can_be_wired(algorithm, self.wire) else algorithm)
      if not self._can_run(coded):
        continue
      found.append(_named(name, self.model.cost(
          [one._replace(algorithm=coded if one.algorithm.wire else algorithm)
           for one in batches[algorithm.pair is not None]])))
    return found

  def parts(self, plan: planner.Plan,
            why: Callable[[planner.Bucket], str]) -> tuple[Part, ...]:
    """Returns a plan's parts, in the order of buckets."""
    alike = collections.defaultdict(list)
    for bucket in plan.buckets:
      alike[bucket.algorithm, bucket.shards, why(bucket),
            len(bucket.tensors) > 1, bucket.wired].append(bucket)
    return tuple(self._part(plan, key[2], buckets)
                 for key, buckets in alike.items())

  def _part(self, plan: planner.Plan, why: str,
            buckets: Sequence[planner.Bucket]) -> Part:
    total = self._cost(plan, buckets)
    sizes = [bucket.num_bytes or 0 for bucket in buckets]
    return Part(
        buckets[0].algorithm, buckets[0].shards, why,
        len(buckets[0].tensors) > 1, len(buckets),
        tuple(sorted(i for bucket in buckets for i in bucket.tensors)),
        sum(sizes), min(sizes), max(sizes), total.most_steps,
        total.usage.inside, total.usage.across, total.time, total.usage.basis,
        str(plan.wire) if buckets[0].wired else None,
        self.roundings(plan.algorithm(buckets[0])))

  def _can_run(self, algorithm: registry.Algorithm) -> bool:
    """Whether it sends nothing that its wire would have to round again."""
    wire, topology = algorithm.wire, self.model.topology
    if (wire is None or wire.codec.is_exact_again
        or wiring.is_rounded_least(algorithm, wire)
        or len(topology.devices) > usage.MOST_TRACED):
      return True
    try:
      proof.prove(algorithm, topology, len(topology.devices))
    except errors.AlgorithmError:
      return False
    return True

  def roundings(self, algorithm: registry.Algorithm) -> int | None:
    """Returns how often terms are rounded for a wire; None if not known."""
    topology = self.model.topology
    if algorithm.wire is None:
      return 0
    if wiring.is_rounded_least(algorithm, algorithm.wire):
      return 2
    if len(topology.devices) > usage.MOST_TRACED:
      return None
    return proof.prove(algorithm, topology,
                       len(topology.devices) * algorithm.shards).roundings

  def _cost(self, plan: planner.Plan,
            buckets: Iterable[planner.Bucket] | None = None) -> cost.Cost:
    return self.model.cost(planner.all_reduces(plan, self._sizes, buckets))


def _named(spec: str, total: cost.Cost) -> SpecCost:
  used = total.usage
  return SpecCost(spec, used.steps, used.inside, used.across, total.time,
                  used.basis)
