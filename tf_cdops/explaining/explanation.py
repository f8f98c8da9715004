"""Says what a spec will do: which tensors go how, why, and at what cost."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.explaining import parts as parts_lib
from tf_cdops.explaining import sizes as sizes_lib
from tf_cdops.explaining import wording
from tf_cdops.planning import auto_rules
from tf_cdops.planning import pinned
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib
from tf_cdops.planning import spmd_rules
from tf_cdops.planning import spec_file
from tf_cdops.registry import requirements


@dataclasses.dataclass(frozen=True)
class Explanation:
  """What a spec will do. `str` gives a report, `to_dict` the same as data.

  Attributes:
    spec: what was explained.
    topology: the devices.
    network: the links that times are predicted for.
    sizes: the tensors.
    plan: what is sent, bucket by bucket.
    parts: the plan's buckets, those alike together.
    total: what all of it costs.
    least: the lower bound: no all-reduce of these bytes can be quicker.
    others: the same tensors by other algorithms that can run here, the
      quickest first.
    rules: those of "auto", if it chose.
    packing: what is joined, if anyone said.
    wire: how messages may be encoded.
    backward_seconds: of the backward pass, if anyone said.
    exposed_seconds: how long the all-reduce then goes on after it.
  """

  spec: spec_lib.AllReduceSpec
  topology: topology_lib.Topology
  network: cost.Network
  sizes: tuple[planner.TensorSize, ...]
  plan: planner.Plan
  parts: tuple[parts_lib.Part, ...]
  total: parts_lib.SpecCost
  least: cost.Time
  others: tuple[parts_lib.SpecCost, ...]
  rules: tuple[auto_rules.Rule, ...]
  packing: planner.Packing | None = None
  wire: registry.Wire | None = None
  backward_seconds: float | None = None
  exposed_seconds: float | None = None

  @property
  def num_bytes(self) -> int:
    """The bytes of all tensors, on one replica."""
    return sum(part.num_bytes for part in self.parts)

  def __str__(self) -> str:
    return wording.report(self)

  def save_plan(self, path: str | os.PathLike[str]) -> None:
    """Writes the plan to a file, which given as "@path" pins it.

    See `AllReduceCrossDeviceOps.save_plans`.

    Args:
      path: the file.

    Raises:
      ValueError: if the file can't be written.
    """
    spec_file.write(path, spec_file.content(
        str(self.spec), self.packing or planner.Packing(),
        given_links.uncommon(self.network, self.topology),
        [planner.to_pin(self.plan, self.sizes, self.topology)], self.wire))

  def difference_from_plans(self) -> str:
    """Says how the batch differs from the nearest that the file pins."""
    return pinned.difference(pinned.Batch.of(self.sizes, self.topology),
                             self.spec.plans)

  def to_dict(self) -> dict[str, Any]:
    """Returns it as dicts, lists, numbers and texts."""
    return {
        "all_reduce_spec": str(self.spec),
        "pinned": self.plan.is_pinned,
        "wire": None if self.wire is None else str(self.wire),
        "workers": [len(ranks) for ranks in self.topology.workers],
        "device_types": sorted(self.topology.device_types),
        "network": dataclasses.asdict(self.network),
        "tensors": len(self.sizes),
        "bytes": self.num_bytes,
        "buckets": [bucket._asdict() for bucket in self.plan.buckets],
        "parts": [_timed(part) for part in self.parts],
        "total": _timed(self.total),
        "least_seconds": self.least.total,
        "others": [_timed(other) for other in self.others],
        "backward_seconds": self.backward_seconds,
        "exposed_seconds": self.exposed_seconds,
        "auto_rules": [dataclasses.asdict(rule) for rule in self.rules],
    }


def explain(spec: Any, topology: topology_lib.Topology,
            sizes: Iterable[Any], *,
            packing: planner.Packing | None = None,
            network: cost.Network | str | None = None,
            wire: Any = None, wire_scope: str = "across",
            spmd: bool = False,
            backward_seconds: float | None = None) -> Explanation:
  """Says what a spec will do with tensors of some sizes on some devices.

  >>> topology = tf_cdops.Topology.grid(workers=2, devices_per_worker=4)
  >>> explanation = tf_cdops.explain("ps/ps", topology, [1024, 4 << 20])
  >>> explanation.total.across   # Bytes; print(explanation) tells the rest.
  8390656

  Nothing runs and no device need be there; it takes seconds for thousands.

  Args:
    spec: as for `parse_all_reduce_spec`.
    topology: the devices.
    sizes: for each tensor its bytes (of float32) or its (shape, dtype).
    packing: what is joined before it travels; None for what the spec's file
      says, if it does.
    network: the links, or the name of the one between workers, for "auto" and
      for predicted times; if None, those of the spec's file, or else those
      that are common for such devices.
    wire: how messages are encoded: see `MultiWorkerAllReduce`.
    wire_scope: which of them.
    spmd: whether it is for `SpmdStrategy`, one program a worker. Then the spec
      is as that takes it, and packs are of `packing.cap` bytes at the most.
    backward_seconds: how long the backward pass takes, in which gradients
      appear; "auto" cuts packs for it, and what isn't hidden is told.

  Returns:
    An Explanation, to print or to look into.

  Raises:
    ValueError: if the spec is wrong, or can't run on these devices.
  """
  parsed = planner.parse_all_reduce_spec(spec, "spec")
  if not isinstance(topology, topology_lib.Topology):
    raise errors.InputError(
        f"`topology` ({topology!r}) must be a Topology; make one with "
        "Topology.grid(workers, devices_per_worker).")
  tensors = sizes_lib.parse(sizes)
  model = cost.Model(topology, given_links.resolve(
      given_links.check(network) or parsed.network, topology))
  how = parsed.wire_for(wire, wire_scope)
  if spmd:
    parsed = spmd_rules.resolve(
        parsed, len(topology.workers), wire=how,
        nccl=requirements.nccl_can_run(topology, parts_lib.MACHINE))
    packing = spmd_rules.packing(tensors, len(topology.workers),
                                 packing.cap if packing else None)
  backward = errors.check_seconds("backward_seconds", backward_seconds)
  costs = parts_lib.PlanCosts(model, tensors, packing, how, backward)
  plan = costs.plan(parsed)
  if spmd:
    plan = spmd_rules.sharded(plan, tensors, len(topology.workers))
  needed = {line.alg for line in parsed} - {spec_lib.AUTO}
  for name in sorted(needed | {b.algorithm for b in plan.buckets}):
    requirements.check(registry.lookup(name), topology, parts_lib.MACHINE)
  parts = costs.parts(plan, _reasons(parsed, plan, packing, tensors))
  return Explanation(
      parsed, topology, model.network, tensors, plan, parts,
      costs.spec_cost(
          f"@{parsed.file}" if plan.is_pinned else str(parsed), plan),
      cost.lower_bound(topology, _num_bytes_sent(plan, tensors),
                       model.network),
      _others("" if plan.is_pinned else str(parsed), costs, spmd), plan.rules,
      packing or parsed.packing, how, backward,
      None if backward is None else planner.exposed_seconds(
          plan, model, tensors, backward))


def _num_bytes_sent(plan: planner.Plan,
                    sizes: Sequence[planner.TensorSize]) -> int:
  """Returns the bytes of all tensors as they travel."""
  total = 0
  for one in planner.all_reduces(plan, sizes):
    wire = one.algorithm.wire
    total += one.num_bytes if wire is None else int(
        wire.codec.num_bytes(one.elements, one.itemsize))
  return total


def _others(text: str, costs: parts_lib.PlanCosts,
            spmd: bool) -> tuple[parts_lib.SpecCost, ...]:
  """Returns what all costs but the spec of this text."""
  names = [known.name for known in registry.all_reduce_algorithms()]
  topology = costs.model.topology
  if len(topology.devices) == 1:
    return ()
  if spmd:
    return _others_of_programs(text, costs, names)
  names += auto_rules.pairs(topology, names)
  able = lambda algorithm: costs.model.knows(algorithm) and (
      not requirements.unmet(algorithm, topology, parts_lib.MACHINE))
  found = costs.spec_costs(name for name in names if name != text
                          and able(registry.lookup(name)))
  if text != spec_lib.AUTO:
    found.append(costs.spec_cost(
        spec_lib.AUTO, costs.plan(spec_lib.parse(spec_lib.AUTO))))
  return tuple(sorted(found, key=lambda one: one.time.total))


def _others_of_programs(text: str, costs: parts_lib.PlanCosts,
                        names: Sequence[str]
                        ) -> tuple[parts_lib.SpecCost, ...]:
  """Returns what the other ways cost that programs have, one a worker."""
  topology = costs.model.topology
  found = []
  for spec in spmd_rules.alternatives(topology, names, costs.wire):
    if str(spec) != text and not any(
        requirements.unmet(registry.lookup(name), topology, parts_lib.MACHINE)
        for name in spec.algorithms):
      found.append(costs.spec_cost(str(spec), costs.plan(spec)))
  return tuple(sorted(found, key=lambda one: one.time.total))


def _reasons(spec: spec_lib.AllReduceSpec, plan: planner.Plan,
             packing: planner.Packing | None,
             sizes: Sequence[planner.TensorSize]
             ) -> Callable[[planner.Bucket], str]:
  """Returns a function that says why a bucket goes the way it goes."""
  if plan.is_pinned:
    return lambda bucket: f"pinned by {spec.file}"

  @functools.cache
  def reason(num_bytes: int) -> str:
    if spec.is_auto:
      return auto_rules.rule_for(num_bytes, plan.rules).why
    line = spec.index(spec.line_for(num_bytes))
    if len(spec) == 1:
      return "the spec has it for every size"
    text = spec_lib.format_bytes
    if line == 0:
      return f"tensors of up to {text(spec[0].limit)}"
    above = f"tensors over {text(spec[line - 1].limit)}"
    if line == len(spec) - 1:
      return above
    return f"{above}, up to {text(spec[line].limit)}"

  wanted = packing or spec.packing
  packed = "; packed as asked" if packing else "; packed as its file says"

  def why(bucket: planner.Bucket) -> str:
    packs = wanted and wanted.wanted and len(bucket.tensors) > 1
    return (reason(sizes[bucket.tensors[0]].num_bytes or 0)
            + (packed if packs else ""))

  return why


def _timed(part: parts_lib.Part | parts_lib.SpecCost) -> dict[str, Any]:
  return dataclasses.asdict(part) | {
      "time": dataclasses.asdict(part.time) | {"total": part.time.total}}
