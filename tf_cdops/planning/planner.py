"""Decides which tensors travel together and how, without TensorFlow."""

from collections.abc import Sequence
from typing import Any

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.planning import auto_plans
from tf_cdops.planning import buckets as buckets_lib
from tf_cdops.planning import packs as packs_lib
from tf_cdops.planning import pinned
from tf_cdops.planning import plans as plans_lib
from tf_cdops.planning import spec as spec_lib

Packing = packs_lib.Packing
DEFAULT_CAP = packs_lib.DEFAULT_CAP
TensorSize = buckets_lib.TensorSize
Bucket = buckets_lib.Bucket
Plan = plans_lib.Plan
Choice = plans_lib.Choice
all_reduces = plans_lib.all_reduces
exposed_seconds = auto_plans.exposed_seconds
ITEMSIZES = buckets_lib.ITEMSIZES
MOST_BYTES = buckets_lib.MOST_BYTES
total_bytes = buckets_lib.total_bytes
_ARGUMENT = "all_reduce_spec"


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
  registry.all_reduce_algorithms()  # Loaded now, not in "auto"'s first step.
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
         wire: registry.Wire | None = None,
         backward_seconds: float | None = None) -> Plan:
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
    backward_seconds: how long the backward pass takes, in which gradients
      appear one by one; "auto" cuts packs between workers so that the first
      leave early. None for about as long as the all-reduce takes, and then
      only where that makes the all-reduce by itself hardly longer; 0 for a
      batch that is there at once.

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
    return Plan(plans_lib.make_buckets(sizes, topology, packing, [
        (line.limit, Choice(line.alg, line.shards, wired=wire is not None))
        for line in spec], wire), wire=wire)
  return auto_plans.choose(
      sizes, topology, packing, nccl,
      given_links.resolve(network or spec.network, topology), wire,
      backward_seconds)


def to_pin(plan: Plan, sizes: Sequence[TensorSize],
           topology: topology_lib.Topology) -> pinned.PinnedPlan:
  """Returns a plan as files have it."""
  wired = any(bucket.wired for bucket in plan.buckets)
  return pinned.PinnedPlan(pinned.Batch.of(sizes, topology), plan.buckets,
                           str(plan.wire) if wired else None)


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
