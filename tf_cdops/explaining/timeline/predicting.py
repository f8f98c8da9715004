"""What the cost model says of the batches that a trace shows."""

from collections.abc import Iterator, Sequence

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.explaining import explanation
from tf_cdops.explaining import parts as parts_lib
from tf_cdops.explaining.timeline import trace
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

_WIRE = "bfloat16"


class Batch:
  """A batch as it was planned, and what it is predicted to take."""

  def __init__(self, plan: planner.Plan, sizes: Sequence[planner.TensorSize],
               topology: topology_lib.Topology,
               network: given_links.Given | None = None, spmd: bool = False):
    """Initializes.

    Args:
      plan: its buckets.
      sizes: its tensors.
      topology: the devices.
      network: the links; None for common ones.
      spmd: whether programs reduce it, one a worker.
    """
    self._spmd = spmd
    self._plan, self._sizes, self._topology = plan, sizes, topology
    self._model = cost.Model(topology, given_links.resolve(network, topology))

  @property
  def num_bytes(self) -> int:
    return sum(bucket.num_bytes or 0 for bucket in self._plan.buckets)

  def buckets(self, scope: str,
              names: Sequence[str | None]) -> list[trace.Bucket]:
    """Returns its buckets; a tensor without a name is told by its position.

    Args:
      scope: what the names of its ops begin with.
      names: of its tensors.
    """
    return [trace.Bucket(
        scope, number, bucket.algorithm, bucket.num_bytes,
        tuple(names[i] or f"tensor {i}" for i in bucket.tensors),
        self._seconds(self._plan, [bucket]))
            for number, bucket in enumerate(self._plan.buckets)]

  def savings(self) -> list[trace.Saving]:
    """Returns what might be changed, and what is left of the time then."""
    now = self._seconds(self._plan)
    if self._spmd:
      return self._savings_of_programs()
    return [trace.Saving(change, self._seconds(plan) / now)
            for change, plan in self._changes() if now]

  def _savings_of_programs(self) -> list[trace.Saving]:
    if self._plan.wire is not None or len(self._topology.workers) < 2:
      return []
    sizes = [((size.num_bytes // planner.ITEMSIZES[size.dtype],), size.dtype)
             for size in self._sizes if size.num_bytes]
    now, then = (explanation.explain(
        spec_lib.AUTO, self._topology, sizes, wire=wire, spmd=True,
        network=self._model.network).total.time.total
                 for wire in (None, _WIRE))
    return [trace.Saving(f"wire={_WIRE!r}", then / now)] if now else []

  def _changes(self) -> Iterator[tuple[str, planner.Plan]]:
    largest = max(self._plan.buckets, key=lambda one: one.num_bytes or 0)
    spec = spec_lib.parse((largest.algorithm, largest.shards, -1))
    alone = [bucket for bucket in self._plan.buckets
             if len(bucket.tensors) == 1]
    changes: list[tuple[str, spec_lib.AllReduceSpec, planner.Packing | None,
                        registry.Wire | None]] = []
    if len(alone) > 1:
      changes.append((f"Packing {len(alone)} tensors that travel alone "
                      "(num_packs=1)", spec, planner.Packing(num_packs=1),
                      self._plan.wire))
    if self._plan.wire is None and len(self._topology.workers) > 1:
      changes.append((f"wire={_WIRE!r}", spec, None,
                      registry.check_wire(_WIRE, "across")))
    changes.append(("all_reduce_spec='auto'", spec_lib.parse(spec_lib.AUTO),
                    None, self._plan.wire))
    for change, wanted, packing, wire in changes:
      costs = parts_lib.PlanCosts(self._model, self._sizes, packing, wire)
      try:
        yield change, costs.plan(wanted)
      except errors.Error:  # It isn't for these devices.
        continue

  def _seconds(self, plan: planner.Plan,
               buckets: Sequence[planner.Bucket] | None = None) -> float:
    return self._model.cost(
        planner.all_reduces(plan, self._sizes, buckets)).time.total
