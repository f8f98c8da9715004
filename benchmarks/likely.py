"""The ways of ours that may be the quickest for a load, by the cost model."""

import collections
import dataclasses
import itertools
import os
from collections.abc import Sequence

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given
from tf_cdops.planning import auto_rules
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

_SHARDS = (1, 4)
_PACKS = (0, 1, 4)
# How many beside "auto"; and no more than so many times the best's time.
_MOST, _HOPELESS = 1, 2.0


@dataclasses.dataclass(frozen=True)
class Way:
  """A spec and its packing, with what the model says of them.

  Attributes:
    spec: its text.
    packing: what is joined; None to leave it to the spec.
    buckets: the plan's.
    seconds: predicted, on this machine's cores.
    messages: that the busiest worker sends and receives, by the model.
    wire: how messages are encoded.
  """

  spec: str
  packing: planner.Packing | None
  buckets: tuple[planner.Bucket, ...]
  seconds: float
  messages: int
  wire: registry.Wire | None = None

  def __str__(self) -> str:
    packs = self.packing.num_packs if self.packing else 0
    wire = f", {self.wire}" if self.wire else ""
    return self.spec + wire + (
        f", {packs} pack{'s' * (packs > 1)}" if packs else "")

  @property
  def summary(self) -> str:
    """Its buckets in a few words."""
    kinds = collections.Counter(
        str(planner.Choice(b.algorithm, b.shards, len(b.tensors) > 1))
        for b in self.buckets)
    return "; ".join(f"{count} by {kind}" for kind, count in kinds.items())


def ways(topology: topology_lib.Topology, sizes: Sequence[planner.TensorSize],
         link: cost.Link | None) -> list[Way]:
  """Returns "auto", and others that may beat it, the likeliest first."""
  network = given.resolve(link, topology)
  model = cost.Model(topology, network)
  auto = _way(model, sizes, spec_lib.AUTO, None)
  names = auto_rules.candidates(topology, nccl=False)
  workers = len(topology.workers)
  found = [
      _way(model, sizes, f"{name}#{shards}" if shards > 1 else name,
           planner.Packing(num_packs=packs))
      for name, shards, packs in itertools.product(
          names, dict.fromkeys((*_SHARDS, workers)), _PACKS)
      if packs < len(sizes)]
  found.sort(key=lambda way: way.seconds)
  # Two that differ in the number of packs or shards alone tell little.
  kinds = {_kind(auto.buckets)}
  chosen = []
  for way in found:
    if len(chosen) == _MOST or way.seconds > _HOPELESS * found[0].seconds:
      break
    if _kind(way.buckets) not in kinds:
      kinds.add(_kind(way.buckets))
      chosen.append(way)
  ring = next(way for way in found if str(way) == (
      "xring" if workers == len(topology.devices) else "ps/xring"))
  if _kind(ring.buckets) not in kinds and (
      ring.seconds <= _HOPELESS * found[0].seconds):
    chosen.append(ring)
  return [auto, *chosen]


def wired(topology: topology_lib.Topology,
          sizes: Sequence[planner.TensorSize], link: cost.Link | None,
          wires: Sequence[str]) -> list[Way]:
  """Returns "auto" without a wire, and with each of some.

  One that "auto" leaves out is there with a direct exchange, too: what it would
  have been like.
  """
  model = cost.Model(topology, given.resolve(link, topology))
  found = [_way(model, sizes, spec_lib.AUTO, None)]
  for wire in map(registry.check_wire, wires):
    found.append(_way(model, sizes, spec_lib.AUTO, None, wire))
    if not any(bucket.wired for bucket in found[-1].buckets):
      found.append(_way(model, sizes, exchange(len(topology.workers)), None,
                        wire))
  return found


def exchange(workers: int) -> str:
  """Returns the spec of a direct exchange, which rounds least of all."""
  return f"ps#{workers}"


def on_shared_cores(model: cost.Model) -> cost.Model:
  """Returns the model of hosts that are all on this machine.

  What a message and a copy take of a processor's time, they take of few cores
  that all hosts share. Plans are made as for hosts with cores of their own.
  """
  network = model.network
  share = max(1.0, len(model.topology.workers) / len(os.sched_getaffinity(0)))
  busy = lambda link: dataclasses.replace(
      link, message_seconds=share * link.message_seconds)
  return cost.Model(model.topology, dataclasses.replace(
      network, inside=busy(network.inside), across=busy(network.across),
      copied_bytes_per_second=network.copied_bytes_per_second / share))


def _way(model: cost.Model, sizes: Sequence[planner.TensorSize], spec: str,
         packing: planner.Packing | None,
         wire: registry.Wire | None = None) -> Way:
  plan = planner.plan(sizes, model.topology,
                      planner.parse_all_reduce_spec(spec), packing,
                      network=model.network, wire=wire)
  costs = on_shared_cores(model).cost(planner.all_reduces(plan, sizes))
  return Way(spec, packing, plan.buckets, costs.time.total,
             int(costs.usage.messages.sum(axis=0).max()), wire)


def _kind(buckets: Sequence[planner.Bucket]) -> frozenset[tuple[str, bool]]:
  return frozenset((b.algorithm, b.shards > 1, len(b.tensors) > 1)
                   for b in buckets)
