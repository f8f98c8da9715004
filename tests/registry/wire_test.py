"""Tests of wires without TensorFlow: proofs, bytes, costs, plans."""

import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process

import tf_cdops
from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.planning import planner
from tf_cdops.registry import proof
from tf_cdops.registry import wire as wire_lib
from tf_cdops.registry import wiring

_SPECS = ("ps", "pscpu", "xring", "rechd", "hierarchical_copy", "ps/ps",
          "ps/xring", "xring/ps", "xring/rechd", "rechd/rechd",
          "hierarchical_copy/ps")
_GRIDS = ((2, 1), (3, 1), (8, 1), (4, 2), (3, 3), (2, 4))


_PACKAGE = '''
import tensorflow as tf
import tf_cdops

tf_cdops.register_wire_codec(
    "ternary", description="-1, 0 or 1.",
    encode=lambda vector: tf.cast(tf.sign(vector), tf.int8),
    decode=lambda message, like: tf.cast(message, like.dtype),
    num_bytes=lambda elements, itemsize: elements, unit=1.0)
'''


def grid(workers, devices):
  return tf_cdops.Topology.grid(workers, devices, device_type="CPU")


def worker_of(topology):
  found = {host: w for w, host in enumerate(topology.hosts)}
  return found | {topology.devices[rank]: w
                  for w, ranks in enumerate(topology.workers)
                  for rank in ranks}


def bytes_across(trace, topology, itemsize=4):
  workers = worker_of(topology)
  return sum(transfer.num_bytes(itemsize) for transfer in trace.transfers
             if workers[transfer.source] != workers[transfer.target])


def blocks(name="blocks"):
  """A codec that may not encode again what it decoded."""
  return registry.WireCodec(
      name, "", lambda vector: vector, lambda message, like: message,
      lambda elements, itemsize: elements + 4 * (-(-elements // 1024)),
      frozenset(["float32"]), 1 / 254)


class ProofTest(parameterized.TestCase):

  @parameterized.product(spec=_SPECS, grid_of=_GRIDS, shards=(1, 3),
                         scope=("across", "all"))
  def test_sends_the_same_in_half_the_bytes(self, spec, grid_of, shards, scope):
    """And every replica has every term, by the same roundings."""
    topology = grid(*grid_of)
    plain = registry.lookup(spec, shards)
    wire = registry.check_wire("bfloat16", scope)
    coded = registry.wired(plain, wire)
    before, after = (proof.prove(one, topology, 1000)
                     for one in (plain, coded))
    links = lambda trace: sorted((t.step, t.source, t.target, t.elements)
                                 for t in trace.transfers)
    self.assertEqual(links(after), links(before))
    self.assertEqual(2 * bytes_across(after, topology),
                     bytes_across(before, topology))
    workers = worker_of(topology)
    for transfer in after.transfers:
      crosses = workers[transfer.source] != workers[transfer.target]
      self.assertEqual(transfer.codec is not None, crosses or scope == "all")
    self.assertGreaterEqual(after.roundings, 2)
    if wiring.is_rounded_least(plain, wire):
      self.assertEqual(after.roundings, 2)
    used = cost.Model(topology).cost([cost.AllReduce(coded, 1000, 4)]).usage
    self.assertEqual(used.across, bytes_across(after, topology))

  @parameterized.parameters(("xring", 8, 8), ("rechd", 8, 4),
                            ("hierarchical_copy", 8, 4), ("ps", 8, 2))
  def test_roundings(self, spec, workers, roundings):
    algorithm = registry.wired(registry.lookup(spec),
                               registry.check_wire("float16"))
    trace = proof.prove(algorithm, grid(workers, 1), 64)
    self.assertEqual(trace.roundings, roundings)

  @parameterized.parameters("ps", "xring", "ps/ps", "ps/xring",
                            "hierarchical_copy", "xring/ps")
  def test_what_cant_be_rounded_twice_is_sent_on_as_it_came(self, spec):
    topology = grid(4, 2 if "/" in spec else 1)
    algorithm = registry.wired(registry.lookup(spec), wire_lib.Wire(blocks()))
    trace = proof.prove(algorithm, topology, 10_000)
    used = cost.Model(topology).cost(
        [cost.AllReduce(algorithm, 10_000, 4)]).usage
    self.assertEqual(used.across, bytes_across(trace, topology))

  def test_or_raises(self):
    for name, topology in (("rechd", grid(4, 1)), ("xring", grid(2, 2))):
      algorithm = registry.wired(registry.lookup(name),
                                 wire_lib.Wire(blocks("mine")))
      with self.assertRaisesRegex(
          ValueError, rf"`wire` \('mine'\) can't be had with '{name}' on "
          "these devices: it joins sums.*; use 'auto', 'ps'"):
        proof.prove(algorithm, topology, 64)

  @parameterized.parameters(("collective", "across"), ("nccl", "across"),
                            ("ps/collective", "across"), ("nccl/ps", "all"))
  def test_engines_send_what_they_sum(self, spec, scope):
    with self.assertRaisesRegex(ValueError, "`wire` .*bfloat16.* can't be had "
                                f"with '{spec}'.* use 'auto' or 'ps'"):
      registry.wired(registry.lookup(spec),
                     registry.check_wire("bfloat16", scope))

  def test_nccl_inside_and_a_wire_across(self):
    algorithm = registry.wired(registry.lookup("nccl/ps"),
                               registry.check_wire("bfloat16"))
    topology = tf_cdops.Topology.grid(4, 2)
    self.assertEqual(proof.prove(algorithm, topology, 64).roundings, 2)


class PlanTest(parameterized.TestCase):

  def plan(self, sizes, topology, spec="auto", wire="bfloat16", **how):
    tensors = [planner.TensorSize(dtype, size) for dtype, size in sizes]
    return planner.plan(tensors, topology, planner.parse_all_reduce_spec(spec),
                        wire=registry.check_wire(wire), **how)

  def test_auto_rounds_no_more_than_it_must(self):
    for workers, devices in ((2, 1), (4, 1), (8, 2), (32, 4)):
      plan = self.plan([("float32", 16 << 20)] * 4, grid(workers, devices),
                       network=cost.preset("1gbe"))
      for bucket in plan.buckets:
        self.assertTrue(bucket.wired)
        self.assertTrue(wiring.is_rounded_least(
            registry.lookup(bucket.algorithm), plan.wire), bucket.algorithm)

  def test_auto_leaves_out_what_does_not_pay(self):
    # Where links cost nothing, but encoding does.
    network = cost.Network(cost.Link("inside", 0, 1e15),
                           cost.Link("across", 0, 1e15), 1e9)
    plan = self.plan([("float32", 16 << 20)], grid(4, 1), network=network)
    self.assertEqual([bucket.wired for bucket in plan.buckets], [False])

  def test_auto_knows_what_a_codec_takes(self):
    # Of a link so fast that what coding takes decides.
    network = cost.Network(cost.Link("inside", 0, 1e15),
                           cost.Link("across", 0, 1e9), 6e9)
    for name, wired in (("bfloat16", True), ("int8", False)):
      plan = planner.plan(
          [planner.TensorSize("float32", 16 << 20)], grid(4, 1),
          planner.parse_all_reduce_spec("auto"), network=network,
          wire=registry.check_wire(name))
      self.assertEqual({b.wired for b in plan.buckets}, {wired}, name)

  def test_auto_on_gpus_and_between_all_devices(self):
    tensors = [planner.TensorSize("float32", 16 << 20)]
    for scope, wired in (("across", True), ("all", False)):
      plan = planner.plan(
          tensors, tf_cdops.Topology.grid(4, 2),
          planner.parse_all_reduce_spec("auto"), nccl=True,
          network=cost.preset("1gbe"),
          wire=registry.check_wire("bfloat16", scope))
      self.assertEqual({b.wired for b in plan.buckets}, {wired})

  def test_a_spec_is_heeded(self):
    plan = self.plan([("float32", 1 << 20)], grid(4, 1), "xring#2")
    self.assertEqual([(b.algorithm, b.shards, b.wired) for b in plan.buckets],
                     [("xring", 2, True)])

  def test_dtypes(self):
    plan = self.plan([(dtype, 1 << 20) for dtype in (
        "int64", "complex64", "float16", "float32", "float64")], grid(4, 1),
                     "ps")
    self.assertEqual({b.tensors[0] for b in plan.buckets if b.wired}, {3, 4})

  @parameterized.parameters((grid(1, 4), "across", False),
                            (grid(1, 4), "all", True),
                            (grid(1, 1), "all", False))
  def test_one_worker(self, topology, scope, wired):
    plan = planner.plan([planner.TensorSize("float32", 1 << 20)], topology,
                        planner.parse_all_reduce_spec("xring"),
                        wire=registry.check_wire("bfloat16", scope))
    self.assertEqual([bucket.wired for bucket in plan.buckets], [wired])


class ExplainTest(absltest.TestCase):

  def explain(self, wire="bfloat16", **how):
    return tf_cdops.explain(
        "auto", grid(4, 1), [((1 << 20,), "float32"), ((64,), "int32")],
        network="1gbe", wire=wire, **how)

  def test_says_what_is_rounded_and_what_is_not(self):
    text = " ".join(str(self.explain()).split())
    self.assertRegex(text, "messages are bfloat16; 2 roundings at most, so "
                     "within 0.79% of the sum of magnitudes")
    self.assertIn("int32 travel as they are: bfloat16 takes float32, float64",
                  text)

  def test_bytes(self):
    plain, coded = (tf_cdops.explain("auto", grid(4, 1), [1 << 22] * 2,
                                     network="1gbe", wire=wire)
                    for wire in (None, "float16"))
    self.assertEqual((coded.total.across * 2, coded.parts[0].wire),
                     (plain.total.across, "float16"))
    self.assertLess(coded.least.total, plain.least.total)
    self.assertLess(coded.total.time.total, plain.total.time.total)
    self.assertEqual(coded.to_dict()["wire"], "float16")

  def test_says_that_it_does_not_pay(self):
    network = cost.Network(cost.Link("inside", 0, 1e15),
                           cost.Link("across", 0, 1e15), 1e9)
    e = tf_cdops.explain("auto", grid(4, 1), [1 << 20], network=network,
                         wire="bfloat16")
    self.assertIn("The wire bfloat16 doesn't pay here", str(e))
    e = tf_cdops.explain("xring", grid(1, 4), [1 << 20], wire="bfloat16")
    self.assertIn("has nothing to do: there is one worker", str(e))


class RegistryTest(absltest.TestCase):

  def test_ours(self):
    self.assertContainsSubset(["bfloat16", "float16", "int8"],
                              [codec.name for codec in registry.wire_codecs()])

  def test_a_codec_of_ones_own(self):
    mine = blocks("mine")
    self.assertIs(registry.check_wire(mine).codec, mine)
    self.addCleanup(wire_lib._codecs.pop, "doubled", None)
    how = {"description": "", "encode": mine.encode, "decode": mine.decode,
           "num_bytes": mine.num_bytes}
    codec = tf_cdops.register_wire_codec("doubled", **how)
    self.assertIs(registry.check_wire("doubled").codec, codec)
    with self.assertRaisesRegex(ValueError, r"`name` \('doubled'\) must not be "
                                "registered already; pass override=True"):
      tf_cdops.register_wire_codec("doubled", **how)
    tf_cdops.register_wire_codec("doubled", override=True, **how)

  def test_of_another_package(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / "ternary.py").write_text(_PACKAGE)
    info = folder / "ternary-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: ternary\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tf_cdops.wire_codecs]\nternary = ternary\n")
    outcome = python_process.run(
        "-m", "tf_cdops", "explain", "--workers=2", "--devices=1",
        "--device_type=CPU", "--sizes=4m", "--all_reduce_spec=ps",
        "--wire=ternary", first_on_path=(str(folder),))
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertIn("ps: messages are ternary; 2 roundings at most",
                  " ".join(outcome.stdout.split()))
    self.assertRegex(outcome.stdout, r"\b2 MiB\b")  # A quarter, there and back.

  def test_wrong_ones(self):
    for wire, scope, error in (
        ("bfloat61", "across", r"`wire` \('bfloat61'\) must be None, a codec, "
         "or the name of one: .*bfloat16.*Did you mean 'bfloat16'"),
        (16, "across", r"`wire` \(16\) must be None"),
        (None, "all", r"`wire_scope` \('all'\) must be given with a `wire`"),
        ("float16", "inside", r"`wire_scope` \('inside'\) must be 'across'")):
      with self.assertRaisesRegex(ValueError, error):
        registry.check_wire(wire, scope)
    for name in ("a b", "", 5):
      with self.assertRaisesRegex(ValueError, "`name` .* must be letters"):
        tf_cdops.register_wire_codec(
            name, description="", encode=abs, decode=max, num_bytes=max)

  def test_pinned(self):
    topology = grid(2, 1)
    found = tf_cdops.explain("ps", topology, [1 << 20], wire="bfloat16")
    path = self.create_tempfile().full_path
    found.save_plan(path)
    with self.assertRaisesRegex(
        ValueError, "pins a plan whose messages are encoded, by the wire "
        "'bfloat16'; give the same `wire`"):
      tf_cdops.explain(f"@{path}", topology, [1 << 20], wire="float16")
    # The file has the wire, too.
    again = tf_cdops.explain(f"@{path}", topology, [1 << 20])
    self.assertEqual(again.plan.buckets, found.plan.buckets)


if __name__ == "__main__":
  absltest.main()
