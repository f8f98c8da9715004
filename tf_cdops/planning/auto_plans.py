"""The plan that the spec "auto" stands for: of the least predicted time."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.planning import auto_rules
from tf_cdops.planning import buckets as buckets_lib
from tf_cdops.planning import overlap
from tf_cdops.planning import packs as packs_lib
from tf_cdops.planning import plans as plans_lib

Packing = packs_lib.Packing
TensorSize = buckets_lib.TensorSize
Plan = plans_lib.Plan
Choice = plans_lib.Choice
# Transfers that are looked at to compare plans; see `cost.Model`. With three
# times as many, and with half as many, the plans of 160 random batches on up to
# 256 devices, of workers alike and not, took the same time within 0.2%.
_WORK = 20_000
# Plans whose times differ by less are as good as each other, by the model.
_ALIKE = 1.01
# A pack is worth its messages if it saves this part of the time.
_LEAST_GAIN = 1 / 256
# Smaller ones aren't made by cutting: 500 KB, which 8 hosts with two devices
# sent in 30 messages, took 4 times as long as predicted.
_LEAST_PACK = 1 << 20
# With devices that compute meanwhile, an op of an all-reduce waits for one of
# theirs, and links for it, unless they have other packs to carry. ResNet-50 on
# 4 hosts at 200 Mbit/s, computing 1.5 times as long as it sends, one run: 6
# packs took 11.4 s a step, 12 11.5, 19 11.1, 35 11.1; 9.6 without all-reduce.
_LEAST_PACKS = 16


def choose(sizes: Sequence[TensorSize], topology: topology_lib.Topology,
           packing: Packing, nccl: bool, links: cost.Network,
           wire: registry.Wire | None,
           backward_seconds: float | None) -> Plan:
  """Returns the plan; see `planner.plan` for the arguments."""
  loads = [size.num_bytes for size in sizes]
  if packing.wanted:  # What is packed together goes by one algorithm.
    loads = [bucket.num_bytes for bucket in plans_lib.make_buckets(
        sizes, topology, packing, [(None, Choice("ps"))])]
  batch = _Batch(tuple(sizes), topology, packing, wire)
  rules = list(itertools.chain.from_iterable(
      auto_rules.proposals(loads, topology, nccl, links, packing.wanted, how)
      for how in dict.fromkeys((None, wire))))
  plans = list(map(batch.plan, rules))
  if len(plans) == 1:
    return plans[0]
  model = cost.Model(topology, links, _WORK, in_proportion=True)
  chosen, time = _quickest(plans, model, sizes)
  if packing.wanted or len(topology.workers) == 1 or backward_seconds == 0:
    return plans[chosen]
  return _overlapped(plans[chosen], time, rules[chosen], batch, model,
                     backward_seconds)


def exposed_seconds(plan: Plan, model: cost.Model,
                    sizes: Sequence[TensorSize],
                    backward_seconds: float) -> float:
  """Returns how long an all-reduce goes on when the backward pass has ended.

  Args:
    plan: of the batch.
    model: of its devices and links.
    sizes: the batch.
    backward_seconds: from the start of the pass to the last gradient.
  """
  return _exposed(plan, model.cost(plans_lib.all_reduces(plan, sizes)).time,
                  sizes, backward_seconds)


def _exposed(plan: Plan, time: cost.Time, sizes: Sequence[TensorSize],
             backward_seconds: float) -> float:
  """Returns the same of a plan that takes so long by itself."""
  arrived = overlap.arrivals(len(sizes), backward_seconds)
  total = buckets_lib.total_bytes(sizes) or 1
  end = overlap.finish(
      (arrived[min(bucket.tensors)], time.latency
       + (time.total - time.latency) * (bucket.num_bytes or 0) / total)
      for bucket in plan.buckets)
  return max(0.0, end - backward_seconds)


@dataclasses.dataclass(frozen=True)
class _Batch:
  """What is planned for."""

  sizes: tuple[TensorSize, ...]
  topology: topology_lib.Topology
  packing: Packing
  wire: registry.Wire | None

  def plan(self, rules: auto_rules.Rules,
           cuts: Sequence[int] | None = None) -> Plan:
    """Returns the plan of some rules.

    Args:
      rules: of "auto".
      cuts: where packs are cut. If None, one is cut in as many as it would
        have shards: as much is under way at once, and the first can leave
        earlier. But where shards have a root each, they stay.
    """
    if cuts is None:
      cuts = self._even_cuts(rules)
    packs = len(cuts) + 1
    rules = tuple(dataclasses.replace(rule, shards=max(1, rule.shards // packs))
                  if _is_cut(rule) else rule for rule in rules)
    return Plan(plans_lib.make_buckets(
        self.sizes, self.topology, self.packing,
        [(rule.limit, Choice(rule.algorithm, rule.shards, rule.pack,
                             rule.wired)) for rule in rules],
        self.wire, cuts), rules, wire=self.wire)

  def _even_cuts(self, rules: auto_rules.Rules) -> tuple[int, ...]:
    most = max((rule.shards for rule in rules if _is_cut(rule)), default=1)
    if most == 1 or len(self.topology.workers) == 1 or self.packing.wanted:
      return ()
    # Small ones are, if any, and all if there is one rule.
    limit = math.inf if rules[0].limit is None else rules[0].limit
    known = [size.num_bytes or 0 for size in self.sizes]
    packed = [num_bytes if num_bytes <= limit else 0 for num_bytes in known]
    return overlap.even_cuts(packed, min(most, sum(packed) // _LEAST_PACK))


def _is_cut(rule: auto_rules.Rule) -> bool:
  """Whether packs can stand for shards."""
  return rule.pack and not auto_rules.is_rooted(rule.algorithm)


def _quickest(plans: Sequence[Plan], model: cost.Model,
              sizes: Sequence[TensorSize]) -> tuple[int, cost.Time]:
  """Returns which plan has the least predicted time, or about that; and it.

  What a message costs differs more from machine to machine than such plans do:
  of those, the one with the fewest messages is taken.
  """
  costs = [model.cost(plans_lib.all_reduces(plan, sizes)) for plan in plans]
  least = min(one.time.total for one in costs)
  near = [(int(one.usage.messages.sum(axis=0).max()), one.time.total, i)
          for i, one in enumerate(costs) if one.time.total <= _ALIKE * least]
  best = min(near)[-1]
  return best, costs[best].time


def _overlapped(plan: Plan, time: cost.Time, rules: auto_rules.Rules,
                batch: _Batch, model: cost.Model,
                backward_seconds: float | None) -> Plan:
  """Returns the plan with packs cut for the backward pass, if that pays."""
  if not any(rule.pack for rule in rules):
    return plan
  sizes = batch.sizes
  total = buckets_lib.total_bytes(sizes) or 1
  backward = time.total if backward_seconds is None else backward_seconds
  # What is cut by default must be as good where nothing is computed.
  longest = time.total / _LEAST_PACKS if backward_seconds else math.inf
  cut = batch.plan(rules, overlap.cuts(
      [time.total * (size.num_bytes or 0) / total for size in sizes],
      overlap.arrivals(len(sizes), backward),
      time.latency + _LEAST_GAIN * time.total, total // _LEAST_PACK,
      longest))
  cut_time = model.cost(plans_lib.all_reduces(cut, sizes)).time
  if backward_seconds is None and cut_time.total > _ALIKE * time.total:
    return plan
  pays = _exposed(cut, cut_time, sizes, backward) < _exposed(
      plan, time, sizes, backward)
  return cut if pays else plan
