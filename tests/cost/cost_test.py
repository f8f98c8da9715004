"""Tests of what all-reduces use of the links, and of predicted times."""

import functools
import unittest.mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import all_reduce_contract

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.explaining import cost
from tf_cdops.explaining import counting
from tf_cdops.explaining import usage as usage_lib
from tf_cdops.registry import proof

workers_of = all_reduce_contract.workers_of
_TOPOLOGIES = (*all_reduce_contract.ONE_WORKER,
               *all_reduce_contract.SEVERAL_CPU_WORKERS,
               *all_reduce_contract.SEVERAL_GPU_WORKERS, workers_of(3, 3, 3),
               workers_of(2, 3, 2, kind="CPU"))
_NAMES = ("xring", "rechd", "ps", "pscpu", "psgpu", "hierarchical_copy",
          "xring/xring", "xring/ps", "rechd/pscpu", "ps/rechd", "pscpu/pscpu",
          "hierarchical_copy/xring")


def star(fabric, values, group):
  total = fabric.add(values, group.places[0])
  return [fabric.copy(total, place) for place in group.places]


class CountedTest(parameterized.TestCase):
  """What is used is what a trace counts, link by link."""

  def check(self, name, topology, length, shards, turn):
    trace = proof.prove(registry.lookup(name), topology, length, shards,
                        turn)
    used = counting.of_all_reduce(registry.lookup(name), topology, length, 4,
                               shards, turn)
    worker = {topology.devices[rank]: w
              for w, ranks in enumerate(topology.workers) for rank in ranks}
    worker = dict(zip(topology.hosts, range(99), strict=False)) | worker
    across, sent, received = 0, {}, {}
    for (source, target), elements in trace.links().items():
      if worker[source] != worker[target]:
        across += elements
      else:
        sent[source] = sent.get(source, 0) + elements
        received[target] = received.get(target, 0) + elements
    where = f"{name} on {topology.workers}, {length}, {shards}, {turn}"
    self.assertEqual(used.across, 4 * across, where)
    self.assertEqual(used.inside, 4 * (trace.moved - across), where)
    self.assertEqual(used.device_loads.max(), 4 * max(
        [*sent.values(), *received.values()], default=0), where)
    slow = {t.step for t in trace.transfers
            if worker[t.source] != worker[t.target]}
    even = len({len(ranks) for ranks in topology.workers}) == 1
    p = len(topology.devices)
    if even and length >= shards * p:
      self.assertEqual(used.steps, trace.steps, where)
    if even and length >= p and shards == 1 and p & (p - 1) == 0:
      self.assertEqual(used.slow_steps, len(slow), where)

  @parameterized.parameters(*_NAMES)
  def test_formulas(self, name):
    for topology in _TOPOLOGIES:
      for length, shards, turn in ((0, 1, 0), (1, 1, 0), (100, 1, 5),
                                   (1000, 3, 2), (7, 9, 1)):
        self.check(name, topology, length, shards, turn)

  @parameterized.parameters("star", "star/xring", "xring/star")
  def test_traces(self, name):
    with unittest.mock.patch.dict(registry._algorithms):
      registry.register_all_reduce("star", description="A star.")(star)
      for topology in _TOPOLOGIES:
        self.check(name, topology, 100, 2, 1)
        used = counting.of_all_reduce(registry.lookup(name), topology, 100)
        if len(topology.devices) > 1 and "xring/" not in name:
          self.assertEqual(used.basis, "traced")

  def test_virtual_workers_share_a_host(self):
    names = [f"/gpu:{i}" for i in range(4)]
    topology = topology_lib.Topology.from_devices(
        names, workers=[names[:2], names[2:]])
    for name in ("pscpu", "pscpu/pscpu", "pscpu/xring"):
      trace = proof.prove(registry.lookup(name), topology, 12)
      used = counting.of_all_reduce(registry.lookup(name), topology, 12)
      self.assertEqual(used.inside + used.across, trace.moved, name)


class UsageTest(parameterized.TestCase):

  @parameterized.parameters(
      ("xring", 2, 4, 2 * 2 * 7 / 8), ("xring/xring", 2, 4, 2),
      ("ps/ps", 2, 4, 2), ("pscpu/pscpu", 4, 2, 6), ("ps", 2, 4, 8),
      ("rechd/xring", 4, 4, 6), ("collective", 2, 4, 2 * 2 * 7 / 8))
  def test_bytes_between_workers(self, name, workers, devices, times):
    topology = topology_lib.Topology.grid(workers, devices)
    used = counting.of_all_reduce(registry.lookup(name), topology, 8000, 4)
    self.assertEqual(used.across, times * 8000 * 4)

  def test_shards_share_the_load(self):
    topology = workers_of(4)
    one, four = (counting.of_all_reduce(registry.lookup("ps"), topology, 400,
                                     1, shards) for shards in (1, 4))
    self.assertEqual((one.inside, one.steps), (four.inside, four.steps))
    self.assertEqual((one.device_loads.max(), four.device_loads.max()),
                     (3 * 400, 3 * 100 + 3 * 100))

  def test_one_after_the_other_and_side_by_side(self):
    used = counting.of_all_reduce(registry.lookup("ps"), workers_of(2, 2), 10)
    self.assertEqual((used.after(used).steps, used.beside(used).steps), (4, 2))
    self.assertEqual(used.after(used).across, 2 * used.across)
    self.assertEqual(used.beside(used).across, 2 * used.across)

  @parameterized.parameters(("nccl", "modelled"), ("nccl/xring", "modelled"),
                            ("xring", "exact"))
  def test_says_how_sure_it_is(self, name, basis):
    topology = workers_of(4) if name == "nccl" else workers_of(2, 2)
    used = counting.of_all_reduce(registry.lookup(name), topology, 10)
    self.assertEqual(used.basis, basis)

  def test_many_shards_are_extrapolated(self):
    topology = topology_lib.Topology.grid(512, 8)
    used = counting.of_all_reduce(registry.lookup("xring/xring"), topology,
                               1 << 20, 4, 1000)
    self.assertEqual(used.basis, "extrapolated")
    self.assertAlmostEqual(used.across / (2 * 511 * (4 << 20)), 1, delta=0.01)

  @parameterized.parameters("ps", "ps/ps", "pscpu/pscpu", "xring", "rechd")
  def test_stand_ins_rotate(self, name):
    topology = topology_lib.Topology.grid(8, 4)
    for count in (30, 96, 300):
      each = [counting.of_all_reduce(registry.lookup(name), topology, 1000,
                                     turn=turn) for turn in range(count)]
      true = functools.reduce(usage_lib.Usage.after, each)
      guess = usage_lib.estimate(
          each[:4], [each[17].times(count - 4, count - 4, "extrapolated")],
          usage_lib.Usage.after)
      self.assertEqual((guess.steps, guess.basis),
                       (true.steps, "extrapolated"))
      for loads in ("device_loads", "worker_loads"):
        self.assertAlmostEqual(
            getattr(guess, loads).max() / getattr(true, loads).max(), 1,
            delta=0.25, msg=f"{name} {count} {loads}")

  def test_stand_ins_of_what_does_not_rotate(self):
    star_only = registry.Algorithm("star", "A star.", star)
    each = [counting.of_all_reduce(star_only, workers_of(4), 1000, turn=turn)
            for turn in range(20)]
    guess = usage_lib.estimate(each[:4], [each[9].times(16, 16)],
                               usage_lib.Usage.after)
    self.assertEqual(guess.device_loads.max(), 20 * 3 * 1000)

  def test_extrapolates_what_has_no_formula(self):
    algorithm = registry.Algorithm("star", "A star.", star)
    ps = registry.lookup("ps")
    for workers, devices in ((1, 128), (32, 8), (2, 64), (128, 1)):
      topology = topology_lib.Topology.grid(workers, devices)
      used = counting.of_all_reduce(algorithm, topology, 1000)
      true = counting.of_all_reduce(ps, topology, 1000)
      self.assertEqual((used.basis, used.steps), ("extrapolated", 2))
      self.assertEqual((used.inside, used.across),
                       (true.inside, true.across))
      self.assertEqual((used.device_loads.max(), used.worker_loads.max()),
                       (true.device_loads.max(), true.worker_loads.max()))

  def test_extrapolates_logarithms_and_lines(self):
    for name in ("rechd", "xring", "hierarchical_copy"):
      known = registry.lookup(name)
      algorithm = registry.Algorithm("own", "Mine.", known.all_reduce)
      topology = topology_lib.Topology.grid(1, 128)
      used = counting.of_all_reduce(algorithm, topology, 1280)
      true = counting.of_all_reduce(known, topology, 1280)
      self.assertEqual((used.steps, used.inside), (true.steps, true.inside))


class TimeTest(parameterized.TestCase):

  def network(self) -> cost.Network:
    return cost.Network(cost.Link("fast", 1, 100), cost.Link("slow", 10, 10))

  def predict(self, name, topology, elements, shards=1) -> cost.Time:
    one = registry.lookup(name), topology, elements, 1, shards
    return cost.predict(counting.of_all_reduce(*one), self.network(),
                        [counting.phases_of(*one)])

  def test_ring_inside(self):
    # 2(p-1) steps; each device sends 2(p-1)/p of 400 bytes.
    self.assertEqual(self.predict("xring", workers_of(4), 400),
                     cost.Time(6, 2 * 3 * 100 / 100, 0))

  def test_pair(self):
    # Two steps inside, and two across; what comes back, 400 bytes each time,
    # waits for the sum.
    self.assertEqual(self.predict("ps/ps", workers_of(2, 2), 400),
                     cost.Time(2 * 1 + 2 * 10, 2 * 400 / 100, 2 * 400 / 10))

  def test_every_step_of_a_flat_ring_crosses(self):
    time = self.predict("xring", workers_of(2, 2), 400)
    self.assertEqual(time.latency, 6 * 10)
    self.assertEqual(time.across, (800 - 200) / 10)

  def test_what_is_sent_back_waits_for_the_sum(self):
    # There and back: 400 bytes each; a ring has two steps of half of them.
    topology = workers_of(1, 1)
    self.assertEqual(self.predict("ps", topology, 400),
                     cost.Time(20, 0, 2 * 400 / 10))
    self.assertEqual(self.predict("xring", topology, 400),
                     cost.Time(20, 0, 2 * 200 / 10))
    # Shards take turns: each device sums half, at the same time.
    self.assertEqual(self.predict("ps", topology, 400, 2),
                     cost.Time(20, 0, 2 * 200 / 10))

  def test_two_buckets_share_the_link_in_both_directions(self):
    ps, topology = registry.lookup("ps"), workers_of(1, 1)
    both = [(ps, topology, 400, 1, 1, turn) for turn in (0, 1)]
    used = counting.of_all_reduce(*both[0]).after(
        counting.of_all_reduce(*both[1]))
    # Each way: 400 bytes to one root, and 400 back from the other.
    self.assertEqual(
        cost.predict(used, self.network(),
                     [counting.phases_of(*one) for one in both]),
        cost.Time(4 * 10, 0, 800 / 10))

  @parameterized.parameters(
      # A ring of 4 inside has 6 hops, and the sum goes to each device; then
      # ps has two steps, and a ring of 2 too, across.
      ("nccl/ps", 7, 2), ("collective/collective", 7, 2),
      ("collective", 0, 14), ("nccl/xring", 7, 2))
  def test_hidden_steps_are_where_the_engine_is(self, name, inside, across):
    self.assertEqual(self.predict(name, workers_of(4, 4), 8).latency,
                     inside * 1 + across * 10)

  def test_phases_add_up(self):
    for name in _NAMES:
      for topology in _TOPOLOGIES:
        one = registry.lookup(name), topology, 1000, 4, 3, 2
        used = counting.of_all_reduce(*one)
        phases = counting.phases_of(*one)
        for part in ("steps", "inside", "across"):
          self.assertEqual(sum(getattr(phase, part) for phase in phases),
                           getattr(used, part), (name, topology.workers, part))

  def test_words(self):
    self.assertEqual(cost.Time(3, 2, 1).mostly, "waiting for steps")
    self.assertEqual(cost.Time(1, 3, 2).mostly, "links inside")
    self.assertEqual(cost.Time(1, 2, 3).mostly, "links across")
    self.assertEqual(cost.Time(1, 2, 3).total, 6)

  def test_least(self):
    self.assertEqual(cost.least(workers_of(4), 400, self.network()),
                     cost.Time(1, 2 * 3 / 4 * 400 / 100, 0))
    self.assertEqual(cost.least(workers_of(2, 2), 400, self.network()),
                     cost.Time(10, 0, 2 * 1 / 2 * 400 / 10))
    self.assertEqual(cost.least(workers_of(1), 400, self.network()).total, 0)
    self.assertEqual(cost.least(workers_of(4), 0, self.network()).total, 0)

  def test_nothing_beats_the_least(self):
    networks = (self.network(), *(
        cost.Network(inside, across) for inside in cost.PRESETS.values()
        for across in cost.PRESETS.values()))
    for name in _NAMES:
      for topology in _TOPOLOGIES:
        for shards in (1, 8):
          used = counting.of_all_reduce(registry.lookup(name), topology, 840,
                                        4, shards)
          for network in networks:
            self.assertGreaterEqual(
                cost.predict(used, network).total * (1 + 1e-9),
                cost.least(topology, 840 * 4, network).total,
                (name, topology.workers, shards, network))

  def test_presets(self):
    self.assertEqual(cost.preset("nvlink"), cost.PRESETS["nvlink"])
    with self.assertRaisesRegex(
        errors.InputError, r"^`--inside` \('nvlnk'\) must be one of nvlink, "
        r".*\. Did you mean 'nvlink'\?$"):
      cost.preset("nvlnk", "--inside")

  @parameterized.parameters(("GPU", "nvlink"), ("CPU", "memory"))
  def test_common_networks(self, kind, inside):
    network = cost.Network.of(workers_of(2, kind=kind))
    self.assertEqual((network.inside.name, network.across.name),
                     (inside, "100gbe"))


if __name__ == "__main__":
  absltest.main()
