"""The rules by which the spec "auto" chooses: the first that fits is taken.

Those for one machine's CPUs, between whom nothing crosses a link, were
measured. Elsewhere they are those of the least predicted time for the whole
batch, by the model that `explain` prints.
"""

import dataclasses
import functools
import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import units
from tf_cdops.planning import packs

# Ends of the sizes that may be packed together.
_LIMITS = tuple(1 << power for power in (12, 14, 16, 18, 20, 22, 24))
# Algorithms for inside a worker, and across, that may be the best.
_INTRA, _INTER = ("nccl", "ps", "xring"), ("ps", "xring", "rechd")
_SHARDS, _MOST_SHARDS = (4, 8), 16
# Of how many, for each part of a batch and then for all of it, it is looked
# closer who is the best.
_TRIED, _PROPOSALS = 3, 5
# And of those beyond so many times the least, none was ever the best.
_HOPELESS = 1.15


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
  """

  where: str
  limit: int | None
  algorithm: str
  pack: bool
  why: str
  shards: int = 1


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
              nccl: bool, network: cost.Network) -> list[Rules]:
  """Returns the rules that may be the best for a batch, the likeliest first.

  Args:
    sizes: the bytes of each tensor; an unknown size counts as large.
    topology: the devices.
    nccl: whether NCCL can run on them.
    network: the links.
  """
  if topology.is_one_cpu or len(topology.devices) == 1:
    return [ONE_CPU]
  known = sorted(size for size in sizes if size)
  return _cheapest(tuple(known) or (1 << 20,), topology, nccl, network)


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
                   or topology.device_types <= known.device_types)]
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


def _shards(name: str, topology: topology_lib.Topology) -> Sequence[int]:
  """Returns in how many parts an algorithm may be the best."""
  workers = len(topology.workers)
  if not 1 < workers <= _MOST_SHARDS:
    return (1,)
  # What one root would do alone, several share; and a cable isn't idle.
  rooted = registry.lookup(name.split("/")[-1]).reduce is not None
  return (1, workers) if rooted else (1, *_SHARDS)


@functools.lru_cache(maxsize=64)
def _units(topology: topology_lib.Topology, nccl: bool, network: cost.Network,
           registered: tuple[registry.Algorithm, ...]
           ) -> dict[tuple[str, int], units.Unit]:
  """Returns what each candidate costs, by its name and shards."""
  del registered  # With others, it is to be looked at anew.
  model = cost.Model(topology, network)
  found = {name: units.of_algorithm(model, registry.lookup(name))
           for name in candidates(topology, nccl)}
  return {(name, shards): unit for name, unit in found.items()
          for shards in _shards(name, topology)}


def _cheapest(sizes: tuple[int, ...], topology: topology_lib.Topology,
              nccl: bool, network: cost.Network) -> list[Rules]:
  """Tries each limit of packing, with the best algorithms below and above."""
  found = _units(topology, nccl, network, registry.all_reduce_algorithms())
  model = cost.Model(topology, network)
  plans, divided = [], -1
  for limit in (0, *(limit for limit in _LIMITS if limit < sizes[-1]),
                sizes[-1]):
    small = [size for size in sizes if size <= limit]
    large = sizes[len(small):]
    if len(small) in (1, divided):
      continue  # Nothing to join, or the same as with the limit before.
    divided = len(small)
    total = sum(small)
    below = _best(found, -(-total // packs.DEFAULT_CAP), total,
                  min(total, packs.DEFAULT_CAP))
    above = _best(found, len(large), sum(large), max(large, default=0))
    plans += [(seconds + more + model.packing_seconds(total), limit, packed,
               plain) for seconds, packed in below for more, plain in above]
  several = len(topology.workers) > 1
  where = "several workers" if several else "one worker's devices"
  plans.sort()
  return [_rules(where, limit if limit < sizes[-1] else None, packed, plain)
          for seconds, limit, packed, plain in plans[:_PROPOSALS]
          if seconds <= _HOPELESS * plans[0][0]]


def _best(found: Mapping[tuple[str, int], units.Unit], count: int, total: int,
          largest: int) -> list[tuple[float, tuple[str, int]]]:
  """Returns the least times for all-reduces of one kind, and by which."""
  return heapq.nsmallest(_TRIED if count else 1, (
      (unit.seconds(count, total, largest, choice[1]), choice)
      for choice, unit in found.items()))


def _rules(where: str, limit: int | None, packed: tuple[str, int],
           plain: tuple[str, int]) -> Rules:
  why = "the least predicted time on these links"
  joined = Rule(where, limit, packed[0], True,
                f"{why}; together they take fewer messages", packed[1])
  alone = Rule(where, None, plain[0], False, why, plain[1])
  return (joined,) if limit is None else (joined, alone) if limit else (alone,)
