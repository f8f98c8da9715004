"""Tests of explanations: the plan, its reasons, its bytes and times."""

import json

from absl.testing import absltest
from absl.testing import parameterized
from tests import all_reduce_contract
from tests import python_process
from tests import registrations

from tf_cdops import cost
from tf_cdops import explaining
from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.explaining import wording
from tf_cdops.planning import planner
from tf_cdops.registry import proof

workers_of = all_reduce_contract.workers_of
_SIZES = [1024] * 5 + [4 << 20, 100_000]
_SPEC = "xring:64k:pscpu/pscpu#2"


class PlanTest(parameterized.TestCase):

  def test_parts_say_what_and_why(self):
    e = explaining.explain(_SPEC, workers_of(4, 4), _SIZES)
    large, small = e.parts
    self.assertEqual(
        (small.algorithm, small.shards, small.tensors, small.buckets,
         small.num_bytes, small.packed, small.steps, small.why),
        ("xring", 1, (0, 1, 2, 3, 4), 5, 5 * 1024, False, 14,
         "tensors of up to 64k"))
    self.assertEqual(
        (large.algorithm, large.shards, large.tensors, large.smallest,
         large.largest, large.steps, large.why),
        ("pscpu/pscpu", 2, (5, 6), 100_000, 4 << 20, 4, "tensors over 64k"))

  @parameterized.parameters(
      ("ps", ["the spec has it for every size"]),
      ("ps:2k:xring:1m:rechd", ["tensors over 2k, up to 1m", "tensors over 1m",
                                "tensors of up to 2k"]))
  def test_reasons_of_a_spec(self, spec, reasons):
    e = explaining.explain(spec, workers_of(4), _SIZES)
    self.assertEqual([part.why for part in e.parts], reasons)

  def test_reasons_of_auto_are_its_rules(self):
    for topology in (workers_of(4), workers_of(4, kind="CPU"),
                     workers_of(2, 2)):
      e = explaining.explain("auto", topology, _SIZES)
      self.assertEqual(e.rules, e.plan.rules)
      whys = {(rule.algorithm, rule.why) for rule in e.rules}
      self.assertContainsSubset(
          {(part.algorithm, part.why) for part in e.parts}, whys)
      self.assertIn("The rules of auto", str(e))

  def test_auto_takes_nccl_for_gpus_of_one_worker(self):
    e = explaining.explain("auto", workers_of(4), _SIZES)
    self.assertEqual({part.algorithm for part in e.parts}, {"nccl"})
    self.assertIn("if TensorFlow has its NCCL kernel", str(e))
    e = explaining.explain("auto", workers_of(4, kind="CPU"), _SIZES)
    self.assertEqual({part.algorithm for part in e.parts}, {"ps"})
    self.assertNotIn("NCCL kernel", str(e))

  def test_packing_as_asked(self):
    e = explaining.explain("ps", workers_of(4), _SIZES,
                           packing=planner.Packing(num_packs=1))
    part, = e.parts
    self.assertEqual((part.packed, part.buckets, part.why),
                     (True, 1, "the spec has it for every size; packed as "
                      "asked"))

  def test_packing_of_a_file(self):
    path = self.create_tempfile(
        "spec.json", '{"all_reduce_spec": "ps", "num_packs": 1}').full_path
    plain = explaining.explain("ps", workers_of(4), _SIZES)
    e = explaining.explain(f"@{path}", workers_of(4), _SIZES)
    part, = e.parts
    self.assertEqual((part.buckets, part.why),
                     (1, "the spec has it for every size; packed as its file "
                      "says"))
    # The others run as they would if they were chosen: not packed.
    self.assertEqual(e.others, plain.others)
    e = explaining.explain(f"@{path}", workers_of(4), _SIZES,
                           packing=planner.Packing())
    self.assertEqual(e.plan, plain.plan)

  def test_every_tensor_is_in_one_part(self):
    for spec in ("auto", _SPEC, "rechd#3"):
      e = explaining.explain(spec, workers_of(3, 3), _SIZES)
      self.assertEqual(sorted(i for part in e.parts for i in part.tensors),
                       list(range(len(_SIZES))))
      self.assertEqual(e.num_bytes, sum(_SIZES))


class BytesTest(parameterized.TestCase):

  @parameterized.parameters(_SPEC, "auto", "rechd/ps#3", "hierarchical_copy")
  def test_are_what_traces_of_the_buckets_count(self, spec):
    for sizes in ((4, 4), (3, 1), (2, 2, 2)):
      topology = workers_of(*sizes, kind="CPU")
      e = explaining.explain(spec, topology, _SIZES)
      worker = {name: topology.workers.index(ranks)
                for ranks in topology.workers
                for name in [topology.devices[rank] for rank in ranks]}
      worker |= dict(zip(topology.hosts, range(9), strict=False))
      inside = across = 0
      for bucket in e.plan.buckets:
        algorithm = registry.lookup(bucket.algorithm, bucket.shards)
        trace = proof.prove(algorithm, topology, bucket.num_bytes // 4,
                            bucket.rotation)
        for (source, target), elements in trace.links().items():
          if worker[source] == worker[target]:
            inside += 4 * elements
          else:
            across += 4 * elements
      self.assertEqual((e.total.inside, e.total.across, e.total.basis),
                       (inside, across, "exact"))
      self.assertEqual(sum(part.across for part in e.parts), across)

  def test_thousands_of_devices(self):
    e = explaining.explain("auto", topology_lib.Topology.grid(512, 8),
                           [4 * 1000 * (i % 40 + 1) for i in range(214)])
    self.assertEqual(e.total.across, 2 * 511 * e.num_bytes)

  def test_an_own_algorithm_is_traced(self):
    with registrations.undone():
      @registry.register_all_reduce("star", description="A star.")
      def star(fabric, values, group):
        total = fabric.add(values, group.places[0])
        return [fabric.copy(total, place) for place in group.places]
      del star
      e = explaining.explain("star", workers_of(4), [4000])
      self.assertEqual((e.total.inside, e.total.basis),
                       (2 * 3 * 4000, "traced"))
      self.assertIn("Counted by a trace.", str(e))
      many = topology_lib.Topology.grid(64, 8)
      with self.assertRaisesRegex(
          errors.AlgorithmError, r"^`algorithm` \('star'\) must have a `traffic"
          r"` formula to tell its cost on 512 devices: without one it is traced"
          r", on at most 64\. See tf_cdops\.register_all_reduce\.$"):
        explaining.explain("star", many, [4000])
      others = explaining.explain("ps", many, [4000]).others
      self.assertNotIn("star", {other.spec for other in others})


class OthersTest(parameterized.TestCase):

  def test_those_that_can_run_by_time(self):
    e = explaining.explain("xring", workers_of(4, kind="CPU"), _SIZES)
    self.assertEqual(
        {way.spec for way in e.others},
        {"auto", *(known.name for known in registry.all_reduce_algorithms()
                   if not known.device_types)} - {"xring"})
    times = [way.time.total for way in e.others]
    self.assertEqual(times, sorted(times))

  def test_pairs_for_several_workers(self):
    names = {way.spec for way in explaining.explain(
        "auto", workers_of(2, 2), _SIZES).others}
    self.assertContainsSubset({"ps/ps", "nccl/xring", "xring"}, names)
    self.assertNoCommonElements({"nccl", "nccl/nccl", "auto"}, names)
    names = {way.spec for way in explaining.explain(
        "auto", workers_of(1, 1), _SIZES).others}
    self.assertFalse([name for name in names if "/" in name])

  def test_one_device(self):
    e = explaining.explain("auto", workers_of(1), _SIZES)
    self.assertEqual((e.others, e.total.time.total), ((), 0))
    self.assertEndsWith(str(e), "One device alone has nothing to send.")

  def test_a_spec_costs_the_same_wherever_it_is_shown(self):
    sizes = [1024] * 500 + [16 << 20] * 4
    for topology in (topology_lib.Topology.grid(64, 8), workers_of(2, 2)):
      listed = {way.spec: way for way in explaining.explain(
          "xring:2k:rechd#3", topology, sizes).others}
      for spec in ("ps/ps", "auto"):
        self.assertEqual(explaining.explain(spec, topology, sizes).total,
                         listed[spec])
      self.assertEqual(listed["ps/ps"].time, listed["psgpu/psgpu"].time)

  def test_one_large_tensor_goes_there_and_back(self):
    e = explaining.explain("ps", workers_of(1, 1), [1 << 30])
    link = e.network.across
    self.assertAlmostEqual(
        e.total.time.total, 2 * (link.latency_seconds + link.message_seconds
                                 + 1.15 * (1 << 30) / link.bytes_per_second))
    self.assertIn("this takes 2.3 times as long", str(e))
    self.assertNotIn("added up", str(e))
    ring = explaining.explain("xring", workers_of(1, 1), [1 << 30] * 4)
    self.assertAlmostEqual(ring.total.time.across, 4 * e.least.across)
    self.assertIn("can be quicker; this is as quick", str(ring))

  def test_parts_overlap(self):
    e = explaining.explain(_SPEC, workers_of(4, 4), _SIZES)
    self.assertLessEqual(e.total.time.total,
                         sum(part.time.total for part in e.parts))
    self.assertIn("Parts share the links and overlap", str(e))

  def test_the_network_counts(self):
    slow = cost.Network(cost.PRESETS["nvlink"], cost.Link("slow", 1, 1e3))
    e = explaining.explain("ps/ps", workers_of(2, 2), [4000], network=slow)
    self.assertAlmostEqual(e.total.time.across, 1.15 * 2 * 4000 / 1e3)
    self.assertGreater(e.total.time.latency, 2)
    self.assertEqual(e.least.total, 1 + 4000 / 1e3)


class FormTest(parameterized.TestCase):

  def test_data(self):
    e = explaining.explain(_SPEC, workers_of(4, 4), _SIZES)
    data = json.loads(json.dumps(e.to_dict()))
    self.assertEqual(data["all_reduce_spec"], _SPEC)
    self.assertEqual(data["workers"], [4, 4])
    self.assertEqual(data["bytes"], sum(_SIZES))
    self.assertLen(data["buckets"], 7)
    self.assertEqual(data["total"]["across"], e.total.across)
    self.assertEqual(data["parts"][0]["time"]["total"],
                     e.parts[0].time.total)

  def test_a_plan_is_saved_and_pinned(self):
    path = self.create_tempfile("plan.json").full_path
    topology = workers_of(2, 3)
    first = explaining.explain("auto", topology, _SIZES, network="1gbe")
    first.save_plan(path)
    e = explaining.explain(f"@{path}", topology, _SIZES)
    self.assertTrue(e.plan.is_pinned)
    self.assertEqual((e.plan.buckets, e.network, e.total.time),
                     (first.plan.buckets, first.network, first.total.time))
    self.assertEqual({part.why for part in e.parts}, {f"pinned by {path}"})
    self.assertRegex(str(e), rf"^all_reduce_spec  @{path}\n")
    other = explaining.explain(f"@{path}", topology, _SIZES[1:])
    self.assertFalse(other.plan.is_pinned)
    self.assertRegex(other.difference_from_plans(),
                     r"^has \d tensors of .* bytes and not \d of ")

  def test_pinned_algorithms_that_cannot_run(self):
    path = self.create_tempfile("plan.json").full_path
    explaining.explain("nccl", workers_of(2), [4]).save_plan(path)
    cpus = workers_of(2, kind="CPU")
    with self.assertRaisesRegex(errors.AlgorithmError, "nccl needs GPU"):
      explaining.explain(f"@{path}", cpus, [4])

  def test_report(self):
    text = str(explaining.explain(_SPEC, workers_of(4, 4), _SIZES))
    self.assertRegex(text, r"(?m)^devices +2 workers with 4 GPUs each$")
    self.assertRegex(text, r"(?m)^xring +1 +5 +5 +5 KiB +14 ")
    self.assertRegex(text, r"(?m)^> xring:64k:pscpu/pscpu#2 ")
    self.assertIn("Tensors 0-4, 1 KiB each.", text)
    self.assertLessEqual(max(map(len, text.splitlines())), 100)

  def test_says_that_cpus_share_memory(self):
    for kind, count in (("CPU", 1), ("GPU", 0)):
      topology = topology_lib.Topology.grid(1, 4, device_type=kind)
      text = " ".join(str(explaining.explain("auto", topology, _SIZES)).split())
      self.assertEqual(text.count("process share its memory"), count)

  def test_empty_tensors_cost_nothing(self):
    e = explaining.explain("auto", workers_of(4), [0, ((0, 3), "int8")])
    self.assertEqual((e.total.time.total, e.num_bytes), (0, 0))
    self.assertIn("There is nothing to send.", str(e))

  @parameterized.parameters(60, 72, 100)
  def test_fits_the_width(self, width):
    for spec in ("auto", _SPEC):
      e = explaining.explain(spec, workers_of(4, 4), _SIZES)
      lines = wording.report(e, width).splitlines()
      self.assertLessEqual(max(map(len, lines)), width)
      self.assertRegex("\n".join(lines), r"(?m)^  ps/ps +\S+ .s\b|^> auto")

  @parameterized.parameters(
      (0, "0 bytes"), (1, "1 byte"), (1023, "1,023 bytes"), (1536, "1.5 KiB"),
      (1000 << 10, "0.977 MiB"), (1023 << 20, "0.999 GiB"),
      (200 << 20, "200 MiB"), (5 << 50, "5,120 TiB"))
  def test_sizes_for_people(self, number, text):
    self.assertEqual(wording.format_bytes(number), text)

  @parameterized.parameters(
      (0, "0 s"), (5e-7, "500 ns"), (8e-11, "0.08 ns"), (1e-15, "< 0.01 ns"),
      (9.999e-4, "1 ms"), (1.234e-3, "1.23 ms"), (2, "2 s"), (999.7, "1,000 s"),
      (54321, "54,321 s"))
  def test_times_for_people(self, number, text):
    self.assertEqual(wording.format_duration(number), text)

  @parameterized.parameters(
      ([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2, 5"),
      ([0, 2, 4, 6, 8], "0, 2, 4, 6, …"))
  def test_ranges(self, numbers, text):
    self.assertEqual(wording.format_ranges(numbers), text)

  def test_shapes_and_types(self):
    class Float64:
      name = "float64"
    e = explaining.explain("ps", workers_of(2),
                           [((3, 5), Float64()), ((), "bfloat16")])
    self.assertEqual([(size.dtype, size.num_bytes) for size in e.sizes],
                     [("float64", 120), ("bfloat16", 2)])

  @parameterized.parameters(
      (-4, r"`sizes\[0\]` \(-4\) must be the bytes of a float32 tensor"),
      (6, r"`sizes\[0\]` \(6\) must be .* give \(shape, dtype\) for another"),
      ("x", "must be a number of bytes, or a pair of a known shape and"),
      (((None, 2), "float32"), "must be a number of bytes, or a pair"),
      (True, "must be a number of bytes"),
      (((-2,), "float32"), "must be a number of bytes, or a pair"),
      (1 << 70, r"`sizes\[0\]` \(\d+\) must be at most 1024g bytes; cut it"),
      (((1 << 70,), "int8"), "must be at most 1024g bytes"),
      (((2,), "string"), r"must be of a dtype of numbers, and 'string' isn't"),
      (((2,), "floot32"), r"isn't one\. Did you mean 'float32'"))
  def test_wrong_sizes(self, size, message):
    with self.assertRaisesRegex(errors.InputError, message):
      explaining.explain("ps", workers_of(2), [size])

  @parameterized.parameters(None, 5, "1k", ([],))
  def test_wrong_lists_of_sizes(self, sizes):
    with self.assertRaisesRegex(errors.InputError,
                                r"^`sizes` \(.*\) must (be a list|have at )"):
      explaining.explain("ps", workers_of(2), sizes)

  def test_wrong_topology(self):
    with self.assertRaisesRegex(
        errors.InputError, r"`topology` \(4\) must be a Topology; make one"):
      explaining.explain("ps", 4, [4])

  @parameterized.parameters(
      ("nccl", "nccl can't leave its worker; use a pair such as 'nccl/xring'"),
      ("xring:1k:nccl", "nccl can't leave its worker"),
      ("xrng", r"^`spec` \('xrng'\): `algorithm` \('xrng'\) .* Did you mean "
       "'xring'"))
  def test_specs_that_cannot_run(self, spec, message):
    with self.assertRaisesRegex(errors.AlgorithmError, message):
      explaining.explain(spec, workers_of(2, 2), _SIZES)

  def test_needs_no_tensorflow(self):
    done = python_process.run("-c", (
        "import sys\n"
        "import tf_cdops\n"
        "devices = tf_cdops.Topology.grid(2, 2)\n"
        "print(tf_cdops.explain('auto', devices, [4]))\n"
        "assert 'tensorflow' not in sys.modules"))
    self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
  absltest.main()
