"""Tests of what all-reduces use of the links, and of predicted times."""


from absl.testing import absltest
from absl.testing import parameterized
from tests import all_reduce_contract
from tests import registrations

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import usage
from tf_cdops.registry import proof

workers_of = all_reduce_contract.workers_of
_TOPOLOGIES = (*all_reduce_contract.ONE_WORKER,
               *all_reduce_contract.SEVERAL_CPU_WORKERS,
               *all_reduce_contract.SEVERAL_GPU_WORKERS, workers_of(3, 3, 3),
               workers_of(2, 3, 2, kind="CPU"))
_NAMES = ("xring", "rechd", "ps", "pscpu", "psgpu", "hierarchical_copy",
          "xring/xring", "xring/ps", "rechd/pscpu", "ps/rechd", "pscpu/pscpu",
          "hierarchical_copy/xring")


def count(name, topology, elements, itemsize=1, shards=1, rotation=0):
  return usage.count(registry.lookup(name, shards), topology,
                     elements, itemsize, rotation)


def star(fabric, values, group):
  total = fabric.add(values, group.places[0])
  return [fabric.copy(total, place) for place in group.places]


class CountedTest(parameterized.TestCase):
  """What is used is what a trace counts, link by link."""

  def check(self, name, topology, length, shards, rotation):
    trace = proof.prove(registry.lookup(name, shards),
                        topology, length, rotation)
    used = count(name, topology, length, 4, shards, rotation)
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
    where = f"{name} on {topology.workers}, {length}, {shards}, {rotation}"
    self.assertEqual(used.across, 4 * across, where)
    self.assertEqual(used.inside, 4 * (trace.moved - across), where)
    self.assertEqual(used.device_bytes.max(), 4 * max(
        [*sent.values(), *received.values()], default=0), where)
    slow = {t.step for t in trace.transfers
            if worker[t.source] != worker[t.target]}
    even = len({len(ranks) for ranks in topology.workers}) == 1
    p = len(topology.devices)
    if even and length >= shards * p:
      self.assertEqual(used.steps, trace.steps, where)
    if even and length >= p and shards == 1 and p & (p - 1) == 0:
      self.assertEqual(used.latencies[1], len(slow), where)

  @parameterized.parameters(*_NAMES)
  def test_formulas(self, name):
    for topology in _TOPOLOGIES:
      for length, shards, rotation in ((0, 1, 0), (1, 1, 0), (100, 1, 5),
                                   (1000, 3, 2), (7, 9, 1)):
        self.check(name, topology, length, shards, rotation)

  @parameterized.parameters("star", "star/xring", "xring/star")
  def test_traces(self, name):
    with registrations.undone():
      registry.register_all_reduce("star", description="A star.")(star)
      for topology in _TOPOLOGIES:
        self.check(name, topology, 100, 2, 1)
        used = count(name, topology, 100)
        if len(topology.devices) > 1 and "xring/" not in name:
          self.assertEqual(used.basis, "traced")

  def test_virtual_workers_share_a_host(self):
    names = [f"/gpu:{i}" for i in range(4)]
    topology = topology_lib.Topology.from_devices(
        names, workers=[names[:2], names[2:]])
    for name in ("pscpu", "pscpu/pscpu", "pscpu/xring"):
      trace = proof.prove(registry.lookup(name), topology, 12)
      used = count(name, topology, 12)
      self.assertEqual(used.inside + used.across, trace.moved, name)


class UsageTest(parameterized.TestCase):

  @parameterized.parameters(
      ("xring", 2, 4, 2 * 2 * 7 / 8), ("xring/xring", 2, 4, 2),
      ("ps/ps", 2, 4, 2), ("pscpu/pscpu", 4, 2, 6), ("ps", 2, 4, 8),
      ("rechd/xring", 4, 4, 6), ("collective", 2, 4, 2 * 2 * 7 / 8))
  def test_bytes_between_workers(self, name, workers, devices, times):
    topology = topology_lib.Topology.grid(workers, devices)
    used = count(name, topology, 8000, 4)
    self.assertEqual(used.across, times * 8000 * 4)

  def test_shards_share_the_load(self):
    one, four = (count("ps", workers_of(4), 400, shards=shards)
                 for shards in (1, 4))
    self.assertEqual((one.inside, one.steps), (four.inside, four.steps))
    self.assertEqual((one.device_bytes.max(), four.device_bytes.max()),
                     (3 * 400, 3 * 100 + 3 * 100))

  def test_one_after_the_other(self):
    used = count("ps", workers_of(2, 2), 10)
    both = used + used
    self.assertEqual((both.steps, both.across), (4, 2 * used.across))

  @parameterized.parameters(("nccl", "modelled"), ("nccl/xring", "modelled"),
                            ("xring", "exact"))
  def test_says_how_sure_it_is(self, name, basis):
    topology = workers_of(4) if name == "nccl" else workers_of(2, 2)
    used = count(name, topology, 10)
    self.assertEqual(used.basis, basis)

  def test_needs_a_formula_for_many_devices(self):
    algorithm = registry.Algorithm("star", "A star.", star)
    for devices, known in ((64, True), (65, False)):
      topology = topology_lib.Topology.grid(1, devices)
      self.assertEqual(cost.Model(topology).knows(algorithm), known)
    with self.assertRaisesRegex(
        errors.AlgorithmError, r"^`algorithm` \('star'\) must have a `traffic` "
        r"formula to tell its cost on 65 devices: .* on at most 64\. See "):
      usage.count(algorithm, topology, 1000)


class ModelTest(parameterized.TestCase):
  """Of a large batch, the largest are counted and stand for the rest."""

  def costs(self, algorithm, topology, count):
    """Returns the cost of a batch as it is, and with eight counted."""
    batch = [cost.AllReduce(algorithm, 1000, 4, rotation)
             for rotation in range(count)]
    true = cost.Model(topology).cost(batch)
    return true.usage, cost.Model(topology, work=0).cost(batch).usage

  @parameterized.parameters("ps", "ps/ps", "pscpu/pscpu", "xring", "rechd")
  def test_the_rest_load_devices_in_turn(self, name):
    algorithm = registry.lookup(name)
    for count in (30, 32):
      true, guess = self.costs(algorithm, topology_lib.Topology.grid(8, 4),
                               count)
      self.assertEqual((true.basis, guess.basis), ("exact", "extrapolated"))
      self.assertEqual((guess.steps, guess.inside + guess.across),
                       (true.steps, true.inside + true.across))
      for loads in ("device_bytes", "worker_bytes"):
        self.assertAlmostEqual(
            getattr(guess, loads).max() / getattr(true, loads).max(), 1,
            delta=0.25, msg=f"{name} {count} {loads}")

  def test_what_does_not_rotate(self):
    algorithm = registry.Algorithm("star", "A star.", star)
    true, guess = self.costs(algorithm, workers_of(3, 3, 3), 9)
    self.assertEqual(guess.basis, "extrapolated")
    self.assertEqual(guess.device_bytes.max(), true.device_bytes.max())
    self.assertEqual(guess.worker_bytes.max(), true.worker_bytes.max())

  def test_nothing_costs_nothing(self):
    total = cost.Model(workers_of(2, 2)).cost(
        [cost.AllReduce(registry.lookup("ps"), 0, 4)])
    self.assertEqual((total.time.total, total.most_steps, total.usage.across),
                     (0, 0, 0))


class InProportionTest(parameterized.TestCase):

  @parameterized.product(
      name=("xring", "ps", "rechd", "hierarchical_copy", "ps/xring"),
      shape=((3, 2), (8, 1), (5, 4)), elements=(100_003, 1_000_000, 50))
  def test_costs_about_the_same(self, name, shape, elements):
    topology = workers_of(*shape)
    batch = [cost.AllReduce(registry.lookup(name, shards), elements + i, 4, i)
             for i in range(5) for shards in (1, 4)]
    exact = cost.Model(topology).cost(batch)
    quick = cost.Model(topology, in_proportion=True).cost(batch)
    self.assertAlmostEqual(quick.time.total / exact.time.total, 1, delta=0.01)
    self.assertEqual(quick.usage.messages.tolist(),
                     exact.usage.messages.tolist())

  def test_what_is_kept_has_a_limit(self):
    topology = topology_lib.Topology.grid(64, 2)
    algorithm = registry.lookup("ps")
    for size in range(1, 4000):  # So small that each is counted by itself.
      if size % 40 == 0:
        model = cost.Model(topology, in_proportion=True)
        model.cost(cost.AllReduce(algorithm, size + i, 4) for i in range(40))
        self.assertLess(len(model._known.usages) * 128, 2 << 17)


class TimeTest(parameterized.TestCase):

  def network(self) -> cost.Network:
    return cost.Network(cost.Link("fast", 1, 100), cost.Link("slow", 10, 10))

  def predict(self, name, topology, elements, shards=1) -> cost.Time:
    algorithm = registry.lookup(name, shards)
    return cost.Model(topology, self.network()).cost(
        [cost.AllReduce(algorithm, elements, 1)]).time

  def test_ring_inside(self):
    # 2(p-1) steps; each device sends 2(p-1)/p of 400 bytes.
    self.assertEqual(self.predict("xring", workers_of(4), 400),
                     cost.Time(6, 2 * 3 * 100 / 100, 0))

  def test_pair(self):
    # Two steps inside, and two across; what comes back, 400 bytes each time,
    # waits for the sum.
    time = self.predict("ps/ps", workers_of(2, 2), 400)
    self.assertEqual((time.latency, time.inside),
                     (2 * 1 + 2 * 10, 2 * 400 / 100))
    self.assertAlmostEqual(time.across, 1.15 * 2 * 400 / 10)

  def test_every_step_of_a_flat_ring_crosses(self):
    time = self.predict("xring", workers_of(2, 2), 400)
    self.assertEqual(time.latency, 6 * 10)
    self.assertAlmostEqual(time.across, 1.15 * (800 - 200) / 10)

  def test_what_is_sent_back_waits_for_the_sum(self):
    # There and back: 400 bytes each; a ring has two steps of half of them.
    # Shards take turns: each device sums half, at the same time. While one
    # sums, its cable is idle, unless there are other shards.
    for name, shards, across in (("ps", 1, 1.15 * 2 * 400),
                                 ("xring", 1, 1.15 * 2 * 200),
                                 ("ps", 2, 1.075 * 2 * 200)):
      time = self.predict(name, workers_of(1, 1), 400, shards)
      self.assertEqual((time.latency, time.inside), (20, 0))
      self.assertAlmostEqual(time.across, across / 10)

  def test_two_buckets_share_the_link_in_both_directions(self):
    model = cost.Model(workers_of(1, 1), self.network())
    total = model.cost(cost.AllReduce(registry.lookup("ps"), 400, 1, rotation)
                       for rotation in (0, 1))
    # Each way: 400 bytes to one root, and 400 back from the other.
    # Alone, one would have an idle cable; both wait for their links.
    self.assertEqual((total.time.latency, total.time.inside), (2 * 10, 0))
    self.assertAlmostEqual(total.time.across, 1.15 * 800 / 10)

  @parameterized.parameters(
      # A ring of 4 inside has 6 hops, and the sum goes to each device; then
      # ps has two steps, and a ring of 2 too, across.
      # NCCL's own take next to no time.
      ("nccl/ps", 2, 2), ("collective/collective", 7, 2),
      ("collective", 0, 14), ("nccl/xring", 2, 2))
  def test_hidden_steps_are_where_the_engine_is(self, name, inside, across):
    self.assertEqual(self.predict(name, workers_of(4, 4), 8).latency,
                     inside * 1 + across * 10)

  def test_phases_add_up(self):
    for name in _NAMES:
      for topology in _TOPOLOGIES:
        one = (registry.lookup(name, 3), topology, 1000, 4,
               2)
        used, phases = usage.count(*one), usage.count_by_phase(*one)
        for part in ("steps", "inside", "across"):
          self.assertEqual(sum(getattr(phase, part) for phase in phases),
                           getattr(used, part), (name, topology.workers, part))

  def test_messages_and_packing(self):
    network = cost.Network(cost.Link("fast", 0, 1e9, 1),
                           cost.Link("slow", 0, 1e9, 10), 100)
    model = cost.Model(workers_of(2, 2), network)
    one = cost.AllReduce(registry.lookup("ps/ps"), 50, 4)
    # Inside, the other device's goes to the leader and back; across, the
    # root's worker gets one and sends one.
    self.assertEqual(model.cost([one]).time.overhead, 2 * 1 + 2 * 10)
    self.assertEqual(model.cost([one] * 3).time.overhead, 3 * 22)
    # Each of a worker's two devices copies 200 bytes, in and out.
    packed = model.cost([one._replace(packed=True)]).time
    self.assertEqual(packed.overhead, 22 + 2 * 2 * 200 / 100)

  def test_changing_partners_get_in_each_others_way(self):
    for name, weight in (("xring", 1), ("rechd", usage.CONTENTION),
                         ("ps", usage.CONTENTION)):
      used = count(name, workers_of(1, 1, 1, 1), 400)
      self.assertEqual(used.worker_bytes[0].sum(), weight * used.across, name)
    used = count("rechd", workers_of(1, 1), 400)  # There is one partner.
    self.assertEqual(used.worker_bytes[0].sum(), used.across)

  def test_words(self):
    self.assertEqual(cost.Time(3, 2, 1).dominant_term, "waiting for steps")
    self.assertEqual(cost.Time(1, 3, 2).dominant_term, "links inside")
    self.assertEqual(cost.Time(1, 2, 3).dominant_term, "links across")
    self.assertEqual(cost.Time(1, 2, 3).total, 6)

  def test_least(self):
    self.assertEqual(cost.lower_bound(workers_of(4), 400, self.network()),
                     cost.Time(1, 2 * 3 / 4 * 400 / 100, 0))
    self.assertEqual(cost.lower_bound(workers_of(2, 2), 400, self.network()),
                     cost.Time(10, 0, 2 * 1 / 2 * 400 / 10))
    for topology, num_bytes in ((workers_of(1), 400), (workers_of(4), 0)):
      self.assertEqual(
          cost.lower_bound(topology, num_bytes, self.network()).total, 0)

  def test_nothing_beats_the_least(self):
    networks = (self.network(), *(  # Quicker inside, across, and alike.
        cost.Network(cost.PRESETS[inside], cost.PRESETS[across])
        for inside, across in (("nvlink", "10gbe"), ("memory", "infiniband"),
                               ("pcie", "infiniband"))))
    for name in _NAMES:
      for topology in _TOPOLOGIES:
        for shards in (1, 8):
          algorithm = registry.lookup(name, shards)
          for network in networks:
            self.assertGreaterEqual(
                cost.Model(topology, network).cost(
                    [cost.AllReduce(algorithm, 840, 4)]).time.total
                * (1 + 1e-9),
                cost.lower_bound(topology, 840 * 4, network).total,
                (name, topology.workers, shards, network))

  def test_presets(self):
    self.assertEqual(cost.preset("nvlink"), cost.PRESETS["nvlink"])
    with self.assertRaisesRegex(
        errors.InputError, r"^`--inside` \('nvlnk'\) must be one of nvlink, "
        r".*\. Did you mean 'nvlink'\?$"):
      cost.preset("nvlnk", "--inside")

  @parameterized.parameters(("GPU", "nvlink"), ("CPU", "memory"))
  def test_common_networks(self, kind, inside):
    network = cost.Network.common(workers_of(2, kind=kind))
    self.assertEqual((network.inside.name, network.across.name),
                     (inside, "100gbe"))


if __name__ == "__main__":
  absltest.main()
