"""The rules by which the spec "auto" chooses: the first that fits is taken.

Those for one machine's CPUs, between whom nothing crosses a link, were
measured. Elsewhere they are those of the least predicted time for the whole
batch, by the model that `explain` prints.
"""

import collections
import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import units
from tf_cdops.planning import packs
from tf_cdops.registry import wiring

# Ends of the sizes that may be packed together.
_LIMITS = tuple(1 << power for power in (12, 14, 16, 18, 20, 22, 24))
# Algorithms for inside a worker, and across, that may be the best.
_INTRA = "nccl", "ps", "xring", "hierarchical_copy"
_INTER = "ps", "xring", "rechd"
_SHARDS, _MOST_SHARDS = (4, 8), 16
# With a wire there is no ring: what one root would do, all workers share.
_MOST_WIRED_SHARDS = 64


@dataclasses.dataclass(frozen=True)
class _Search:
  """Of which choices it is looked closer who is the best.

  Attributes:
    most: the number of tensors that it is for.
    parts: of how many for each part of a batch.
    proposals: of how many for all of it.
    alike: and of how many of those that send large tensors the same way.
    unpacked: of how many that pack nothing, beside.
    hopeless: beyond so many times the least, none was ever the best.
  """

  most: float
  parts: int
  proposals: int
  alike: int
  unpacked: int
  hopeless: float


# A few tensors are quickly looked at, and nothing evens out among them; of
# thousands, each look takes its time.
_SEARCHES = (_Search(5, 16, 16, 16, 3, 1.5), _Search(2_000, 4, 6, 2, 3, 1.15),
             _Search(math.inf, 3, 4, 2, 1, 1.15))
# Those that pack nothing are less like the others, and their costs surer.
_HOPELESS_UNPACKED = 1.3


@dataclasses.dataclass(frozen=True)
class Rule:
  """Tensors of up to `limit` bytes go this way.

  Attributes:
    where: on which devices, for people.
    limit: in bytes; None for no limit.
    algorithm: what sums them.
    pack: whether they are joined into packs first.
    why: the reason, for people.
    shards: in how many parts.
    wired: whether messages are encoded.
  """

  where: str
  limit: int | None
  algorithm: str
  pack: bool
  why: str
  shards: int = 1
  wired: bool = False


# The last has no limit.
Rules = tuple[Rule, ...]

# Nothing crosses a link there: a sum costs what it reads, wherever it is made.
# Two copies of a tensor cost what sending it alone does at about 16 KB, be it
# between 2, 4 or 8 devices: benchmarks/NOTES.md.
ONE_CPU = (
    Rule("one machine's CPUs", 16 << 10, "ps", True,
         "two steps, and small tensors share one sum"),
    Rule("one machine's CPUs", None, "ps", False,
         "two steps; each tensor is summed once, and large ones aren't copied"),
)


def proposals(sizes: Iterable[int | None], topology: topology_lib.Topology,
              nccl: bool, network: cost.Network, one_rule: bool = False,
              wire: registry.Wire | None = None) -> list[Rules]:
  """Returns the rules that may be the best for a batch, the likeliest first.

  Args:
    sizes: the bytes of each tensor; an unknown size counts as large.
    topology: the devices.
    nccl: whether NCCL can run on them.
    network: the links.
    one_rule: whether all tensors are to go the same way, and none is packed.
    wire: how messages are encoded; then only by algorithms that round each
      term and the sum once.
  """
  if topology.is_one_cpu or len(topology.devices) == 1:
    return [] if wire else [ONE_CPU]
  known = sorted(size for size in sizes if size)
  return _cheapest(tuple(known) or (1 << 20,), topology, nccl, network,
                   one_rule, wire)


def rule_for(num_bytes: int | None, rules: Rules) -> Rule:
  """Returns the first rule that fits a tensor."""
  return next(rule for rule in rules if rule.limit is None or (
      num_bytes is not None and num_bytes <= rule.limit))


def candidates(topology: topology_lib.Topology, nccl: bool) -> list[str]:
  """Returns the algorithms, and pairs of them, that may be the best there."""
  several = len(topology.workers) > 1
  names = [known.name for known in registry.all_reduce_algorithms()
           if known.traffic and not known.modelled and not (
               known.kernel or known.whole_devices
               or (known.single_worker and several)) and (
                   not known.device_types
                   or topology.device_types <= known.device_types)
           and not _is_ps_by_another_name(known.name, topology)]
  if len(topology.workers) == len(topology.devices):
    return names
  # NCCL has GPUs' links to itself, and uses them as no copies of TensorFlow's
  # do: the model doesn't know that.
  if nccl:
    return [f"nccl/{inter}" for inter in _INTER] if several else ["nccl"]
  return [*(name for name in pairs(topology, names)
            if not name.startswith("nccl/")), *names]


def pairs(topology: topology_lib.Topology, names: Iterable[str]) -> list[str]:
  """Returns the pairs that may be the best there; none where they add nothing.

  Args:
    topology: the devices; only where workers have several do pairs add any.
    names: of algorithms, each of which is paired with itself.
  """
  if not 1 < len(topology.workers) < len(topology.devices):
    return []
  return list(dict.fromkeys([
      *(f"{a}/{b}" for a, b in itertools.product(_INTRA, _INTER)),
      *(f"{name}/{name}" for name in names)]))


def is_rooted(name: str) -> bool:
  """Whether, between workers, one of them sums all of a shard."""
  return registry.lookup(name.split("/")[-1]).reduce is not None


def _is_ps_by_another_name(name: str, topology: topology_lib.Topology) -> bool:
  """Whether it sums where "ps" does, or on fewer of those devices."""
  return name == "psgpu" or (
      name == "pscpu" and topology.device_types == {"CPU"})


def _shards(name: str, topology: topology_lib.Topology,
            wired: bool) -> Sequence[int]:
  """Returns in how many parts an algorithm may be the best."""
  workers = len(topology.workers)
  if not 1 < workers <= (_MOST_WIRED_SHARDS if wired else _MOST_SHARDS):
    return (1,)
  # What one root would do alone, several share; and a cable isn't idle.
  return (1, workers) if is_rooted(name) else (1, *_SHARDS)


@functools.lru_cache(maxsize=64)
def _units(topology: topology_lib.Topology, nccl: bool, network: cost.Network,
           wire: registry.Wire | None,
           registered: tuple[registry.Algorithm, ...]
           ) -> dict[tuple[str, int], units.Unit]:
  """Returns what each candidate costs, by its name and shards."""
  del registered  # With others, it is to be looked at anew.
  # What it counts is kept for the plans that are looked at closer.
  model = cost.Model(topology, network, in_proportion=True)
  found = {}
  for name in candidates(topology, nccl):
    algorithm = registry.lookup(name)
    if wire is None:
      found[name] = units.of_algorithm(model, algorithm)
    elif (wiring.is_rounded_least(algorithm, wire)
          and wiring.can_be_wired(algorithm, wire)):
      found[name] = units.of_algorithm(model, registry.wired(algorithm, wire))
  return {(name, shards): unit for name, unit in found.items()
          for shards in _shards(name, topology, wire is not None)}


def _cheapest(sizes: tuple[int, ...], topology: topology_lib.Topology,
              nccl: bool, network: cost.Network, one_rule: bool,
              wire: registry.Wire | None) -> list[Rules]:
  """Tries each limit of packing, with the best algorithms below and above."""
  found = _units(topology, nccl, network, wire,
                 registry.all_reduce_algorithms())
  if not found:  # No algorithm for a wire.
    return []
  search = next(one for one in _SEARCHES if len(sizes) <= one.most)
  model = cost.Model(topology, network)
  plans, divided = [], -1
  limits = () if one_rule else (
      *(limit for limit in _LIMITS if limit < sizes[-1]), sizes[-1])
  for limit in (0, *limits):
    small = [size for size in sizes if size <= limit]
    large = sizes[len(small):]
    if len(small) in (1, divided):
      continue  # Nothing to join, or the same as with the limit before.
    divided = len(small)
    total = sum(small)
    below = _best(search, found, -(-total // packs.DEFAULT_CAP), total,
                  min(total, packs.DEFAULT_CAP))
    above = _best(search, found, len(large), sum(large), max(large, default=0))
    plans += [(seconds + more + model.packing_seconds(total), limit, packed,
               plain) for seconds, packed in below for more, plain in above]
  several = len(topology.workers) > 1
  where = "several workers" if several else "one worker's devices"
  plans.sort(key=_seconds)
  alike = collections.Counter[tuple[str, int]]()
  likely: list[tuple[float, int, tuple[str, int], tuple[str, int]]] = []
  for plan in plans:
    if (len(likely) == search.proposals
        or plan[0] > search.hopeless * plans[0][0]):
      break
    alike[plan[-1]] += 1
    if alike[plan[-1]] <= search.alike:
      likely.append(plan)
  unpacked = [plan for plan in plans if plan[1] == 0]
  likely += [plan for plan in unpacked[:search.unpacked]
             if plan[0] <= _HOPELESS_UNPACKED * plans[0][0]]
  return [_rules(where, limit if limit < sizes[-1] else None, packed, plain,
                 wire is not None)
          for _, limit, packed, plain in dict.fromkeys(likely)]


def _best(search: _Search, found: Mapping[tuple[str, int], units.Unit],
          count: int, total: int, largest: int
          ) -> list[tuple[float, tuple[str, int]]]:
  """Returns the least times for all-reduces of one kind, and by which."""
  return heapq.nsmallest(search.parts if count else 1, (
      (unit.seconds(count, total, largest, choice[1]), choice)
      for choice, unit in found.items()), key=_seconds)


def _seconds(found: Sequence[Any]) -> float:
  """By this alone they are sorted: of equals, the first candidate is taken."""
  seconds: float = found[0]
  return seconds


def _rules(where: str, limit: int | None, packed: tuple[str, int],
           plain: tuple[str, int], wired: bool) -> Rules:
  why = "the least predicted time on these links"
  joined = Rule(where, limit, packed[0], True,
                f"{why}; together they take fewer messages", packed[1], wired)
  alone = Rule(where, None, plain[0], False, why, plain[1], wired)
  return (joined,) if limit is None else (joined, alone) if limit else (alone,)
