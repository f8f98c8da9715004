"""Tests of planning: which tensors travel together, and how."""

import collections

import hypothesis
from absl.testing import absltest
from absl.testing import parameterized
from hypothesis import strategies as st
from tests import registrations

import tf_cdops
from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.planning import auto_rules
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

Packing = planner.Packing
_ONE = tf_cdops.Topology.grid(1, 4)
_CPUS = tf_cdops.Topology.grid(1, 4, device_type="CPU")
_TWO = tf_cdops.Topology.grid(2, 2)
_FOUR = tf_cdops.Topology.grid(4, 1, device_type="CPU")
_CAP = planner.DEFAULT_CAP


def planned(sizes, spec="ps", packing=None, topology=_ONE, nccl=False,
            dtypes=None, network=None):
  """Plans tensors of these bytes, of float32 unless `dtypes` says else."""
  dtypes = dtypes or ["float32"] * len(sizes)
  return planner.plan(
      [planner.TensorSize(dtype, size)
       for dtype, size in zip(dtypes, sizes, strict=True)],
      topology, tf_cdops.parse_all_reduce_spec(spec), packing or Packing(),
      nccl=nccl, network=network)


def plan(*args, **kwargs):
  return planned(*args, **kwargs).buckets


def tensors(buckets):
  return [bucket.tensors for bucket in buckets]


class AlgorithmTest(parameterized.TestCase):

  def test_each_tensor_goes_by_its_own_bytes(self):
    # Small tensors first would mix up who gets which gradient.
    buckets = plan([8, 2, 6, 4], "ps#2:4:xring#3")
    self.assertEqual(
        [(b.tensors, b.algorithm, b.shards, b.num_bytes) for b in buckets],
        [((3,), "ps", 2, 4), ((2,), "xring", 3, 6), ((1,), "ps", 2, 2),
         ((0,), "xring", 3, 8)])

  def test_a_pack_of_small_tensors_stays_small(self):
    # Together they are over the limit, but each is chosen for on its own.
    bucket, = plan([3, 3, 3], "ps:4:xring", Packing(num_packs=1))
    self.assertEqual((bucket.algorithm, bucket.num_bytes), ("ps", 9))

  @parameterized.parameters("ps", "ps#3", "auto", "ps:4:xring#2")
  def test_unknown_sizes_are_unsharded_and_unpacked(self, spec):
    buckets = plan([None, 8, None, 8], spec, Packing(num_packs=1))
    for bucket in buckets:
      if bucket.num_bytes is None:
        self.assertLen(bucket.tensors, 1)
        self.assertEqual(bucket.shards, 1)
    self.assertCountEqual(tensors(buckets), [(0,), (2,), (1, 3)])

  def test_unknown_sizes_count_as_large(self):
    self.assertEqual([b.algorithm for b in plan([None], "ps:4:xring")],
                     ["xring"])

  def test_nothing_to_plan(self):
    self.assertEqual(plan([]), ())
    self.assertEqual(plan([], packing=Packing(num_packs=3)), ())


class PackingTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ("none", Packing(), [(3,), (2,), (1,), (0,)]),
      ("one pack", Packing(num_packs=1), [(0, 1, 2, 3)]),
      ("two packs", Packing(num_packs=2), [(2, 3), (0, 1)]),
      ("as many as tensors", Packing(num_packs=4), [(3,), (2,), (1,), (0,)]),
      ("more than tensors", Packing(num_packs=9), [(3,), (2,), (1,), (0,)]),
      ("num_packs turns aggregation off",
       Packing(num_packs=1, small_max_bytes=100, small_max_group=2),
       [(0, 1, 2, 3)]),
      ("capped", Packing(num_packs=1, cap=20), [(2, 3), (0, 1)]),
      ("capped below one tensor", Packing(num_packs=1, cap=5),
       [(3,), (2,), (1,), (0,)]),
      ("aggregated", Packing(small_max_bytes=10), [(0, 1, 2, 3)]),
      ("too large to aggregate", Packing(small_max_bytes=9),
       [(3,), (2,), (1,), (0,)]),
      ("aggregated in groups", Packing(small_max_bytes=10, small_max_group=3),
       [(3,), (0, 1, 2)]),
      ("aggregated alone", Packing(small_max_bytes=10, small_max_group=1),
       [(3,), (2,), (1,), (0,)]),
      ("aggregated in groups of none",
       Packing(small_max_bytes=10, small_max_group=0),
       [(3,), (2,), (1,), (0,)]),
      ("num_packs and groups of none", Packing(num_packs=2, small_max_group=0),
       [(2, 3), (0, 1)]),
      ("aggregation is capped", Packing(small_max_bytes=10, cap=29),
       [(2, 3), (0, 1)]))
  def test_four_equal_tensors(self, packing, expected):
    self.assertEqual(tensors(plan([10] * 4, packing=packing)), expected)

  @parameterized.parameters(
      ([1, 1, 1, 1, 4], 2, [(4,), (0, 1, 2, 3)]),
      ([4, 1, 1, 1, 1], 2, [(1, 2, 3, 4), (0,)]),
      ([1, 2, 3, 4, 5, 6], 3, [(5,), (3, 4), (0, 1, 2)]),
      ([0, 0, 0], 2, [(2,), (0, 1)]),
      ([100, 0, 0], 3, [(2,), (1,), (0,)]))
  def test_packs_are_near_equal(self, sizes, num_packs, expected):
    self.assertEqual(
        tensors(plan(sizes, packing=Packing(num_packs=num_packs))), expected)

  def test_exact_limits_of_aggregation(self):
    # 10 bytes are small, 11 are not; a group has 10 tensors, not 11.
    sizes = [10] * 5 + [11] + [10] * 16
    buckets = plan(sizes, packing=Packing(small_max_bytes=10))
    self.assertEqual(tensors(buckets), [
        (21,), tuple(range(11, 21)), (0, 1, 2, 3, 4, 6, 7, 8, 9, 10), (5,)])

  def test_a_pack_has_one_dtype_and_algorithm(self):
    buckets = plan([2, 2, 9, 9, 2, 9], "ps:4:xring", Packing(num_packs=1),
                   dtypes=["float32", "int64"] * 3)
    self.assertEqual([(b.tensors, b.algorithm) for b in buckets], [
        ((3, 5), "xring"), ((0, 4), "ps"), ((2,), "xring"), ((1,), "ps")])

  def test_lines_of_one_algorithm_and_shards_share_packs(self):
    packing = Packing(num_packs=1)
    self.assertEqual(tensors(plan([2, 9], "ps:4:ps", packing)), [(0, 1)])
    self.assertEqual(tensors(plan([2, 9], "ps:4:ps#2", packing)),
                     [(1,), (0,)])

  def test_default_cap(self):
    half = _CAP // 2
    packing = Packing(num_packs=1)
    self.assertEqual(tensors(plan([half, half], packing=packing)), [(0, 1)])
    self.assertEqual(tensors(plan([half, half + 1], packing=packing)),
                     [(1,), (0,)])
    self.assertEqual(tensors(plan([4, 3 * _CAP, 4], packing=packing)),
                     [(2,), (1,), (0,)])

  def test_text(self):
    text = str(planner.Plan(plan([8, None, 2], "ps:4:xring#2")))
    self.assertEqual(text, "ps#1: tensors 2 (2 bytes)\n"
                     "xring#1: tensors 1 (unknown bytes)\n"
                     "xring#2: tensors 0 (8 bytes)")


class AutoTest(parameterized.TestCase):

  # Sizes on both sides of each measured limit; one device, one machine's CPUs
  # and GPUs, two workers, and workers of one device; with NCCL and without.
  @parameterized.product(
      size=(0, 1, 16 << 10, (16 << 10) + 1, 1 << 40, None),
      topology=(tf_cdops.Topology.grid(1, 1), _CPUS, _ONE, _TWO,
                tf_cdops.Topology.grid(3, 1)),
      nccl=(False, True))
  def test_there_is_a_rule_for_everything(self, size, topology, nccl):
    nccl = nccl and topology in (_ONE, _TWO)
    found = planned([size], "auto", topology=topology, nccl=nccl)
    self.assertIsNone(found.rules[-1].limit)
    for rule in found.rules:
      self.assertEqual(registry.lookup(rule.algorithm).name, rule.algorithm)
      self.assertTrue(rule.why)
    bucket, = found.buckets
    self.assertEqual(bucket.algorithm,
                     auto_rules.rule_for(size, found.rules).algorithm)

  def test_cpus_of_one_machine_have_the_measured_rules(self):
    found = planned([16 << 10, (16 << 10) + 1] * 2, "auto", topology=_CPUS)
    self.assertEqual(found.rules, auto_rules.ONE_CPU)
    self.assertEqual(tensors(found.buckets), [(3,), (0, 2), (1,)])
    self.assertEqual({b.algorithm for b in found.buckets}, {"ps"})

  @parameterized.parameters((_ONE, "nccl"), (_TWO, "nccl/"))
  def test_gpus_have_nccl_inside_a_worker_where_it_can_run(self, topology,
                                                           start):
    sizes = [16 << 20] * 4
    for bucket in plan(sizes, "auto", topology=topology, nccl=True):
      self.assertStartsWith(bucket.algorithm, start)
    for bucket in plan(sizes, "auto", topology=topology, nccl=False):
      self.assertNotIn("nccl", bucket.algorithm)

  @parameterized.parameters({"single_worker": True}, {"kernel": "NcclReduce"},
                            {"whole_devices": True})
  def test_leaves_others_alone_that_may_not_run(self, **needs):
    """A third party's that costs nothing, and what it needs isn't there."""
    free = lambda length, group: registry.Traffic(())
    with registrations.undone():
      registry.register_all_reduce("free", description="Free.", traffic=free,
                                   **needs)(print)
      for bucket in plan([1 << 20] * 4, "auto", topology=_TWO):
        self.assertNotIn("free", bucket.algorithm)

  def test_sees_what_is_registered_later(self):
    free = lambda length, group: registry.Traffic(())
    before = plan([1 << 20], "auto", topology=_FOUR)
    with registrations.undone():
      registry.register_all_reduce("free", description="Free.",
                                   traffic=free)(print)
      bucket, = plan([1 << 20], "auto", topology=_FOUR)
      self.assertEqual(bucket.algorithm, "free")
    self.assertEqual(plan([1 << 20], "auto", topology=_FOUR), before)

  def test_small_tensors_share_messages(self):
    found = planned([4 << 10] * 60 + [16 << 20], "auto", topology=_FOUR)
    self.assertEqual(tensors(found.buckets), [(60,), tuple(range(60))])

  def test_large_tensors_go_round_a_ring_between_hosts(self):
    slow = cost.Link("500mbit", 1e-4, 62.5e6, 1e-4)
    buckets = plan([64 << 20], "auto", topology=_FOUR, network=slow)
    self.assertEqual([b.algorithm for b in buckets], ["xring"])

  def test_links_decide(self):
    """Messages are saved where they cost something."""
    sizes = [64 << 10] * 40
    free = cost.Link("free", 0, 1e8)
    dear = cost.Link("dear", 0, 1e8, 1e-2)
    self.assertLess(len(plan(sizes, "auto", topology=_FOUR, network=dear)),
                    len(plan(sizes, "auto", topology=_FOUR, network=free)))

  def test_own_packs_are_capped(self):
    count = _CAP // (16 << 10)
    buckets = plan([16 << 10] * (count + 1), "auto", topology=_CPUS)
    self.assertEqual([len(b.tensors) for b in buckets], [1, count])

  @parameterized.parameters(
      (None, [(2, 3), (0, 1)]), (Packing(), [(3,), (2,), (1,), (0,)]),
      (Packing(num_packs=1), [(0, 1, 2, 3)]))
  def test_a_specs_own_packing_unless_another_is_given(self, given, expected):
    spec = spec_lib.AllReduceSpec(spec_lib.parse("ps"), Packing(num_packs=2))
    sizes = [planner.TensorSize("float32", 8)] * 4
    buckets = planner.plan(sizes, _ONE, spec, given).buckets
    self.assertEqual(tensors(buckets), expected)

  @parameterized.parameters(
      (Packing(num_packs=1), [(0, 1, 2)]),
      (Packing(num_packs=3), [(2,), (1,), (0,)]),
      (Packing(small_max_bytes=4), [(0, 2), (1,)]),
      (Packing(small_max_group=0), [(2,), (1,), (0,)]),
      (Packing(small_max_bytes=4, small_max_group=0), [(2,), (1,), (0,)]),
      (Packing(small_max_bytes=1 << 20), [(0, 1, 2)]))
  def test_what_the_user_asks_for_wins(self, packing, expected):
    # So all of them go the same way, whatever is the best for each size.
    for topology in (_CPUS, _ONE, _TWO):
      self.assertEqual(tensors(plan([4, 1 << 20, 4], "auto", packing,
                                    topology=topology)), expected)


class TurnTest(parameterized.TestCase):

  def test_like_ones_go_round(self):
    for size in (8, 0, None):
      with self.subTest(size):
        count = len(_ONE.devices)
        turns = [b.rotation for b in plan([size] * 2 * count, "ps",
                                          topology=_ONE)]
        self.assertEqual(turns, [*range(count)] * 2)

  def test_cpus_of_one_machine_take_no_turns(self):
    for workers, turns in ((1, {0}), (2, {0, 1, 2, 3})):
      with self.subTest(workers):
        cpus = tf_cdops.Topology.grid(workers, 4 // workers, device_type="CPU")
        found = plan([8] * 9, "ps", topology=cpus)
        self.assertEqual({b.rotation for b in found},
                         turns)

  def test_the_least_loaded_is_next(self):
    # In reverse: 9 to device 0, 1 to 1, the shards of 8 to 2 and 3, and so on.
    buckets = plan([2, 5, 8, 1, 9], "ps:5:ps#2:8:ps", topology=_ONE)
    self.assertEqual([(b.shards, b.rotation) for b in buckets],
                     [(1, 0), (1, 1), (2, 2), (1, 1), (1, 2)])

  def test_a_rhythm_of_sizes_loads_nobody_more(self):
    sizes = [1000, 10, 10, 10] * 16
    loads = collections.Counter()
    for bucket in plan(sizes, "ps", topology=_ONE):
      loads[bucket.rotation] += bucket.num_bytes
    self.assertLess(max(loads.values()), 1.1 * sum(sizes) / 4)


_SIZES = st.lists(
    st.tuples(st.sampled_from(["float32", "int64"]),
              st.none() | st.integers(0, 40) | st.integers(0, 1 << 20)),
    max_size=30)
_PACKINGS = st.builds(
    Packing, num_packs=st.integers(0, 6), small_max_bytes=st.integers(0, 40),
    small_max_group=st.integers(0, 5), cap=st.integers(1, 100))
_SPECS = st.sampled_from(["auto", "ps", "xring#2", "ps:16:xring#3",
                          "ps:4:rechd:1k:ps"])


class EveryPlanTest(absltest.TestCase):

  @hypothesis.settings(deadline=None, derandomize=True, database=None,
                       max_examples=300)
  @hypothesis.given(_SIZES, _PACKINGS, _SPECS, st.sampled_from([_ONE, _TWO]))
  def test_holds_what_is_promised(self, sizes, packing, spec, topology):
    dtypes = [dtype for dtype, _ in sizes]
    numbers = [number for _, number in sizes]
    buckets = plan(numbers, spec, packing, topology, dtypes=dtypes)
    # Every tensor is in one bucket, and buckets go from last to first.
    self.assertCountEqual([i for b in buckets for i in b.tensors],
                          range(len(sizes)))
    lasts = [b.tensors[-1] for b in buckets]
    self.assertEqual(lasts, sorted(lasts, reverse=True))
    for bucket in buckets:
      self.assertIn(bucket.rotation, range(len(topology.devices)))
      self.assertEqual(bucket.tensors, tuple(sorted(bucket.tensors)))
      self.assertLen({dtypes[i] for i in bucket.tensors}, 1)
      weights = [numbers[i] for i in bucket.tensors]
      if None in weights:
        self.assertLen(weights, 1)
        self.assertIsNone(bucket.num_bytes)
      else:
        self.assertEqual(bucket.num_bytes, sum(weights))
      if len(weights) > 1:
        self.assertLessEqual(bucket.num_bytes, packing.cap)
        if not packing.num_packs and packing.wanted:
          self.assertLessEqual(len(weights), packing.small_max_group)
          self.assertLessEqual(max(weights), packing.small_max_bytes)
    # Each tensor's algorithm is the one it would have alone; "auto" looks at
    # the whole batch.
    for bucket in buckets if spec != "auto" else ():
      for i in bucket.tensors:
        alone, = plan([numbers[i]], spec, topology=topology)
        self.assertEqual((bucket.algorithm, bucket.shards),
                         (alone.algorithm, alone.shards))

  @hypothesis.settings(deadline=None, derandomize=True, database=None)
  @hypothesis.given(st.lists(st.integers(0, 1000), max_size=30),
                    st.integers(1, 10))
  def test_num_packs_is_exact_below_the_cap(self, sizes, num_packs):
    buckets = plan(sizes, packing=Packing(num_packs=num_packs))
    self.assertLen(buckets, min(num_packs, len(sizes)))
    # Packs are runs of neighbours.
    for bucket in buckets:
      self.assertEqual(bucket.tensors, tuple(
          range(bucket.tensors[0], bucket.tensors[-1] + 1)))

  @hypothesis.settings(deadline=None, derandomize=True, database=None)
  @hypothesis.given(st.lists(st.integers(1, 50), min_size=1, max_size=30),
                    st.integers(1, 6), st.integers(50, 200))
  def test_num_packs_and_the_cap(self, sizes, num_packs, cap):
    buckets = plan(sizes, packing=Packing(num_packs=num_packs, cap=cap))
    wanted = max(num_packs, -(-sum(sizes) // cap))
    self.assertGreaterEqual(len(buckets), min(wanted, len(sizes)))


if __name__ == "__main__":
  absltest.main()
