"""Decides which tensors travel together and how, without TensorFlow."""

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.planning import auto_rules
from tf_cdops.planning import buckets as buckets_lib
from tf_cdops.planning import packs as packs_lib
from tf_cdops.planning import pinned
from tf_cdops.planning import rotations as rotations_lib
from tf_cdops.planning import spec as spec_lib

Packing = packs_lib.Packing
DEFAULT_CAP = packs_lib.DEFAULT_CAP
TensorSize = buckets_lib.TensorSize
Bucket = buckets_lib.Bucket
ITEMSIZES = buckets_lib.ITEMSIZES
MOST_BYTES = buckets_lib.MOST_BYTES
total_bytes = buckets_lib.total_bytes
_ARGUMENT = "all_reduce_spec"
# Transfers that are looked at to compare plans; see `cost.Model`.
_WORK = 120_000


@dataclasses.dataclass(frozen=True)
class Plan:
  """The buckets, in the order in which they are sent.

  Attributes:
    buckets: what travels together.
    rules: those of "auto", if it chose.
    is_pinned: whether it is one of the spec's file.
    wire: how messages of those buckets are encoded that are wired.
  """

  buckets: tuple[Bucket, ...]
  rules: tuple[auto_rules.Rule, ...] = ()
  is_pinned: bool = False
  wire: registry.Wire | None = None

  def algorithm(self, bucket: Bucket) -> registry.Algorithm:
    """Returns what sums a bucket, with its shards and its wire."""
    algorithm = registry.lookup(bucket.algorithm, bucket.shards)
    if not bucket.wired:
      return algorithm
    assert self.wire is not None
    return registry.wired(algorithm, self.wire)

  def __str__(self) -> str:
    return "\n".join(
        f"{b.algorithm}#{b.shards}: tensors {', '.join(map(str, b.tensors))} "
        f"({'unknown' if b.num_bytes is None else b.num_bytes} bytes)"
        for b in self.buckets)


@dataclasses.dataclass(frozen=True)
class Choice:
  """How tensors travel; those of one dtype and choice may share a pack."""

  algorithm: str
  shards: int = 1
  pack: bool = False
  wired: bool = False

  def __str__(self) -> str:
    shards = f"#{self.shards}" if self.shards > 1 else ""
    return f"{self.algorithm}{shards}{', packed' if self.pack else ''}"


def parse_all_reduce_spec(
    text: Any, argument: str = _ARGUMENT) -> spec_lib.AllReduceSpec:
  """Returns a spec's lines as a tuple; `str` of it gives the text again.

  >>> tf_cdops.parse_all_reduce_spec("nccl#2:32k:pscpu/pscpu#2")[0]
  AllReduceSpecTuple(alg='nccl', shards=2, limit=32768)

  Args:
    text: the spec, as a text or as (a list of) tuples.
    argument: what an error calls it.

  Returns:
    A tuple of AllReduceSpecTuple.

  Raises:
    ValueError: if the form is wrong or an algorithm isn't registered.
  """
  parsed = spec_lib.parse(text, argument)
  for name in parsed.algorithms:
    try:
      registry.lookup(name)
    except errors.AlgorithmError as error:
      if argument == _ARGUMENT:  # Under this name all know what it is.
        raise
      raise errors.AlgorithmError(
          f"`{argument}` ({text!r}): {error}") from None
  return parsed


def plan(sizes: Sequence[TensorSize], topology: topology_lib.Topology,
         spec: spec_lib.AllReduceSpec, packing: Packing | None = None,
         nccl: bool = False, network: given_links.Given | None = None,
         wire: registry.Wire | None = None) -> Plan:
  """Plans a batch.

  Each tensor's own size chooses its algorithm; then tensors of one dtype and
  algorithm are packed. Buckets are in reverse order of the tensors, because
  backpropagation makes the last layer's gradients first. A batch for which the
  spec's file has a plan goes by that, whatever else is given.

  Args:
    sizes: the tensors.
    topology: the devices.
    spec: chooses the algorithms.
    packing: what is joined; None for what the spec's file says, if it does.
    nccl: whether NCCL can run on these devices; only "auto" asks.
    network: the links, or the one between workers, by which "auto" chooses;
      if None, those of the spec's file, or else those that are common for such
      devices.
    wire: how messages may be encoded. Of a spec's algorithms they are, for
      dtypes that it takes; "auto" chooses whether, and then by an algorithm
      that rounds no more than it must.

  Returns:
    A plan with every tensor in exactly one bucket.
  """
  pinned_plan = spec.pinned_plan(sizes, topology)
  if pinned_plan is not None:
    return _pinned(pinned_plan, wire, spec)
  packing = packing or spec.packing or Packing()
  if wire is not None and not _sends(topology, wire):
    wire = None
  if not spec.is_auto:
    return Plan(_buckets(sizes, topology, packing, [
        (line.limit, Choice(line.alg, line.shards, wired=wire is not None))
        for line in spec], wire), wire=wire)
  links = given_links.resolve(network or spec.network, topology)
  loads = [size.num_bytes for size in sizes]
  if packing.wanted:  # What is packed together goes by one algorithm.
    loads = [bucket.num_bytes for bucket in _buckets(
        sizes, topology, packing, [(None, Choice("ps"))])]
  plans = []
  for rules in itertools.chain.from_iterable(
      auto_rules.proposals(loads, topology, nccl, links, packing.wanted, how)
      for how in dict.fromkeys((None, wire))):
    plans.append(Plan(_buckets(sizes, topology, packing, [
        (rule.limit, Choice(rule.algorithm, rule.shards, rule.pack, rule.wired))
        for rule in rules], wire), rules, wire=wire))
  if len(plans) == 1:
    return plans[0]
  model = cost.Model(topology, links, _WORK)
  return min(plans, key=lambda plan: model.cost(
      all_reduces(plan, sizes)).time.total)


def to_pin(plan: Plan, sizes: Sequence[TensorSize],
           topology: topology_lib.Topology) -> pinned.PinnedPlan:
  """Returns a plan as files have it."""
  wired = any(bucket.wired for bucket in plan.buckets)
  return pinned.PinnedPlan(pinned.Batch.of(sizes, topology), plan.buckets,
                           str(plan.wire) if wired else None)


def all_reduces(plan: Plan, sizes: Sequence[TensorSize],
                buckets: Iterable[Bucket] | None = None
                ) -> list[cost.AllReduce]:
  """Returns a plan's buckets, or some of them, as the cost model takes them."""
  found = []
  for bucket in plan.buckets if buckets is None else buckets:
    itemsize = ITEMSIZES[sizes[bucket.tensors[0]].dtype]
    found.append(cost.AllReduce(
        plan.algorithm(bucket),
        (bucket.num_bytes or 0) // itemsize, itemsize, bucket.rotation,
        len(bucket.tensors) > 1))
  return found


def _buckets(sizes: Sequence[TensorSize], topology: topology_lib.Topology,
             packing: Packing, lines: Sequence[tuple[int | None, Choice]],
             wire: registry.Wire | None = None) -> tuple[Bucket, ...]:
  """Divides tensors among lines: each has a limit in bytes, but the last."""
  limits = [limit or 0 for limit, _ in lines[:-1]]
  choices = [choice for _, choice in lines]
  if packing.wanted:  # The user's wish goes before a rule's.
    choices = [dataclasses.replace(choice, pack=False) for choice in choices]
  alike: dict[tuple[int, str], list[int]] = collections.defaultdict(list)
  all_bytes = [size.num_bytes for size in sizes]
  for position, (size, num_bytes) in enumerate(
      zip(sizes, all_bytes, strict=True)):
    line = (len(limits) if num_bytes is None
            else bisect.bisect_left(limits, num_bytes))
    alike[line, size.dtype].append(position)
  # Two lines may say the same.
  together: dict[tuple[Choice, str], list[int]] = collections.defaultdict(list)
  for (line, dtype), positions in alike.items():
    together[choices[line], dtype] += positions
  packs = []
  for (choice, _), positions in together.items():
    for pack in packs_lib.divide(sorted(positions), all_bytes, choice.pack,
                                 packing):
      packs.append((choice, pack))
  packs.sort(key=lambda item: -item[1][-1])
  # Those that rotate among as many share the balance.
  counts = {choice: rotations_lib.count(topology, "/" in choice.algorithm)
            for choice in choices}
  balancers = {count: rotations_lib.Rotations(count)
               for count in set(counts.values())}
  buckets = []
  largest = max((num_bytes or 0 for num_bytes in all_bytes), default=0)
  for choice, pack in packs:
    total = buckets_lib.bytes_together(all_bytes[i] for i in pack)
    # A tensor whose shape isn't known travels unsharded.
    shards = 1 if total is None else choice.shards
    rotation = balancers[counts[choice]].next(
        shards, largest if total is None else total)
    buckets.append(Bucket(
        tuple(pack), choice.algorithm, shards, rotation, total,
        choice.wired and wire is not None
        and sizes[pack[0]].dtype in wire.codec.dtypes))
  return tuple(buckets)


def _sends(topology: topology_lib.Topology, wire: registry.Wire) -> bool:
  """Whether there is anything to encode."""
  return len(topology.devices if wire.scope == "all"
             else topology.workers) > 1


def _pinned(saved: pinned.PinnedPlan, wire: registry.Wire | None,
            spec: spec_lib.AllReduceSpec) -> Plan:
  if saved.wire and saved.wire != (wire and str(wire)):
    raise errors.SpecError(
        f"`all_reduce_spec` ('@{spec.file}') pins a plan whose messages are "
        f"encoded, by the wire {saved.wire!r}; give the same `wire`, and not "
        f"{wire and str(wire)!r}.")
  return Plan(saved.buckets, is_pinned=True,
              wire=wire if saved.wire else None)
