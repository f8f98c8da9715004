"""What every all-reduce algorithm must do, proved without TensorFlow.

A test of an algorithm, a third party's too, inherits from `Contract` and says
in `algorithm` which it is. Its pairs with the registered ones are proved too.
"""

import collections
import itertools
from collections.abc import Iterator

from absl.testing import absltest

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.fabric import base
from tf_cdops.fabric import tracing
from tf_cdops.registry import proof

COUNTS = (*range(1, 10), 12, 16)
LENGTHS = (0, 1, 2, 7, 64, 100, 1000)
SHARDS = (1, 2, 3, 5)


def workers_of(*sizes: int, kind: str = "GPU") -> topology_lib.Topology:
  """Returns a topology with so many devices on each worker."""
  return topology_lib.Topology.from_devices(
      f"/job:worker/replica:0/task:{worker}/device:{kind}:{device}"
      for worker, size in enumerate(sizes) for device in range(size))


# On CPUs a worker's host is one of its devices, on GPUs it isn't.
ONE_WORKER = (*map(workers_of, COUNTS), workers_of(5, kind="CPU"))
_SIZES = ((1, 1), (2, 2), (1, 1, 1), (4, 4), (2, 2, 2, 2), (3, 1))
SEVERAL_CPU_WORKERS, SEVERAL_GPU_WORKERS = (
    tuple(workers_of(*sizes, kind=kind) for sizes in _SIZES)
    for kind in ("CPU", "GPU"))


class Contract(absltest.TestCase):
  """Proves `algorithm`, alone and in pairs, and holds it to its formula."""

  algorithm: str

  def cases(self, lengths: tuple[int, ...] = LENGTHS
            ) -> Iterator[tuple[str, topology_lib.Topology, int]]:
    """Yields names, topologies and lengths that together cover everything."""
    names = [known.name for known in registry.all_reduce_algorithms()]
    pairs = {f"{self.algorithm}/{inter}" for inter in names}
    # As the second of a pair it sees scattered parts, or one leader a worker.
    pairs |= {f"{intra}/{self.algorithm}" for intra in ("xring", "ps")}
    alone = ONE_WORKER + SEVERAL_CPU_WORKERS + SEVERAL_GPU_WORKERS
    yield from itertools.product([self.algorithm], alone, lengths)
    yield from itertools.product(sorted(pairs), SEVERAL_GPU_WORKERS, lengths)

  def prove(self, name: str, topology: topology_lib.Topology, length: int,
            shards: int = 1) -> proof.Trace:
    try:
      return proof.prove(registry.lookup(name, shards),
                         topology, length)
    except errors.ProofError as error:
      self.fail(f"{_where(name, topology, length)}, {shards} shards: {error}")

  def test_every_output_is_the_whole_sum(self):
    for case in self.cases():
      for shards in SHARDS:
        self.prove(*case, shards)

  def test_the_formula_is_what_the_trace_counts(self):
    """Every link's elements, and the steps, are those of `traffic`."""
    if registry.lookup(self.algorithm).traffic is None:
      self.skipTest("The algorithm gives no formula.")
    for name, topology, length in self.cases(lengths=(0, 1, 7, 100, 1000)):
      if registry.lookup(name).traffic is None:  # The other one of a pair.
        continue
      # Roles rotate; a long vector is cut as a short one is.
      for rotation in (0, 1, 7) if length <= 100 else (0,):
        for shards in (1, 3) if length == 100 else (1,):
          self.check_traffic(name, topology, length, rotation, shards)

  def check_traffic(self, name: str, topology: topology_lib.Topology,
                    length: int, rotation: int, shards: int) -> None:
    where = f"{_where(name, topology, length)}, {rotation}, {shards} shards"
    algorithm = registry.lookup(name, shards)
    group = base.Group.from_topology(topology, rotation)
    trace = proof.prove(algorithm, topology, length, rotation)
    phases = algorithm.traffic(length, group).phases
    self.assertEqual(sum(int(phase.elements.sum()) for phase in phases),
                     trace.moved, where)
    steps = sum(phase.steps for phase in phases)
    even = len({len(ranks) for ranks in topology.workers}) == 1
    if even and length >= shards * len(topology.devices):
      self.assertEqual(trace.steps, steps, where)
    else:  # Parts may be empty, and workers wait for the largest.
      self.assertLessEqual(trace.steps, steps, where)
    if algorithm.modelled:  # An engine's links aren't seen.
      return
    names, carried = group.places + group.hosts, collections.Counter()
    for phase in phases:
      for source, target, elements in zip(
          phase.sources.tolist(), phase.targets.tolist(),
          phase.elements.tolist(), strict=True):
        if elements:
          carried[names[source], names[target]] += elements
    self.assertEqual(carried, trace.links(), where)

  def run_itself(
      self, name: str, topology: topology_lib.Topology, length: int, shard: int
  ) -> tuple[tracing.TracingFabric, list[tracing.TracedValue]]:
    """Runs the algorithm where `sharded` would have spared it the trouble.

    Pairs don't: a worker may have one device, and a part no elements.
    """
    fabric = tracing.TracingFabric()
    group = base.Group.from_topology(topology, shard)
    values = [fabric.replica(i, length, place)
              for i, place in enumerate(group.places)]
    results = registry.lookup(name).all_reduce(fabric, values, group)
    self.assertEqual([result.place for result in results], list(group.places),
                     _where(name, topology, length))
    return fabric, results

  def test_one_device_is_the_identity(self):
    for name, kind, length, shard in itertools.product(
        (self.algorithm, f"{self.algorithm}/{self.algorithm}"),
        ("CPU", "GPU"), LENGTHS, (0, 1, 7)):
      topology = workers_of(1, kind=kind)
      fabric, (result,) = self.run_itself(name, topology, length, shard)
      where = _where(name, topology, length)
      elements = [i for segment in result.segments
                  for i in range(segment.start, segment.stop)]
      self.assertEqual(elements, list(range(length)), where)
      self.assertEqual({fabric.replicas_of(segment.expression)
                        for segment in result.segments},
                       {1} if length else set(), where)
      self.assertEqual(fabric.additions, [], where)

  def test_no_elements_cost_nothing(self):
    for (name, topology, length), shard in itertools.product(
        self.cases(lengths=(0,)), (0, 1, 7)):
      fabric, results = self.run_itself(name, topology, length, shard)
      where = _where(name, topology, length)
      self.assertEqual({result.length for result in results}, {0}, where)
      self.assertEqual((fabric.transfers, fabric.additions,
                        fabric.native_steps), ([], [], []), where)

  def test_lower_bounds(self):
    """No all-reduce can do with less; a trace that did would be wrong."""
    if registry.lookup(self.algorithm).modelled:
      self.skipTest("TensorFlow's engines are modelled, not counted.")
    for name, topology, length in self.cases(lengths=(64, 1000)):
      if registry.lookup(name).modelled:
        continue
      where = _where(name, topology, length)
      trace, p = self.prove(name, topology, length), len(topology.devices)
      arrivals = collections.Counter(
          (transfer.step, transfer.target) for transfer in trace.transfers)
      # Who gets k messages in a step knows k + 1 times as much: with one
      # message a step this is steps >= lg p.
      most = max(arrivals.values(), default=0)
      self.assertGreaterEqual((most + 1)**trace.steps, p, where)
      sent = collections.Counter()
      for transfer in trace.transfers:
        sent[transfer.source] += transfer.elements
      self.assertGreaterEqual(
          p * max(sent.values(), default=0), 2 * (p - 1) * length, where)
      self.assertGreaterEqual(trace.moved, 2 * (p - 1) * length, where)


def _where(name: str, topology: topology_lib.Topology, length: int) -> str:
  sizes = "+".join(str(len(ranks)) for ranks in topology.workers)
  return f"{name} on {sizes} {set(topology.device_types)}, {length} elements"
