"""Tests of the flags."""

import json
from typing import Any

from absl import flags
from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices

import tensorflow as tf

import tf_cdops

NAMES = ("cross_device_ops", "all_reduce_spec", "num_packs",
         "agg_small_grads_max_bytes", "agg_small_grads_max_group",
         "reduce_to_device", "worker_devices", "num_gpus_per_worker")
# One that pins a plan, and has links.
FILE = {
    "all_reduce_spec": "auto", "num_packs": 1,
    "links": {"inside": None, "across": {"latency_seconds": 2e-4,
                                         "bytes_per_second": 1.2e9}},
    "plans": [{"workers": [2], "tensors": [["float32", 8]], "buckets": [
        {"tensors": [0], "algorithm": "ps", "shards": 1, "rotation": 0}]}]}
WHOLE = "must be a whole number of at least"
SPEC_AUTO = ("MultiWorkerAllReduce(all_reduce_spec='auto', num_packs=0, "
             "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
             "sparse='gather')")


def parsed(*args: str) -> flags.FlagValues:
  values = flags.FlagValues()
  tf_cdops.flags.define_flags(values)
  values(["program", *args])
  return values


def build(*args: str) -> Any:
  return tf_cdops.flags.cross_device_ops_from_flags(parsed(*args))


class FlagsTest(parameterized.TestCase):

  def test_wire(self):
    self.assertIn("wire='int8', wire_scope='all'", repr(
        build("--wire=int8", "--wire_scope=all")))
    with self.assertRaisesRegex(ValueError, "`--wire` .int8. has no meaning"):
      build("--cross_device_ops=nccl", "--wire=int8")

  def test_backward_seconds(self):
    self.assertIn("backward_seconds=0.25", repr(build(
        "--backward_seconds=0.25")))

  def test_on_nonfinite(self):
    for choice in ("auto", "multi_worker", "nccl"):
      self.assertIn("on_nonfinite='drop'", repr(build(
          f"--cross_device_ops={choice}", "--on_nonfinite=drop")))
    with self.assertRaisesRegex(ValueError, "`--on_nonfinite` .raise. has no"):
      build("--cross_device_ops=one_device", "--on_nonfinite=raise")

  def test_nothing_is_defined_until_asked_for(self):
    fresh = flags.FlagValues()
    self.assertEmpty(list(fresh))
    for name in NAMES:
      self.assertNotIn(name, flags.FLAGS)
    tf_cdops.flags.define_flags(fresh)
    self.assertContainsSubset(NAMES, list(fresh))

  def test_defaults(self):
    values = parsed()
    self.assertEqual(values.cross_device_ops, "auto")
    for name in NAMES[1:]:
      self.assertIsNone(values[name].value)

  @parameterized.parameters(
      ("cross_device_ops", "nccl", "nccl"),
      ("all_reduce_spec", "auto", (("auto", 1, -1),)),
      ("all_reduce_spec", "XRING".lower(), (("xring", 1, -1),)),
      ("all_reduce_spec", "nccl#2:32k:pscpu/pscpu#2",
       (("nccl", 2, 32768), ("pscpu/pscpu", 2, -1))),
      ("num_packs", "0", 0), ("num_packs", "3", 3),
      ("agg_small_grads_max_bytes", "512", 512),
      ("agg_small_grads_max_bytes", "64k", 65536),
      ("agg_small_grads_max_bytes", "64K", 65536),
      ("agg_small_grads_max_bytes", "2m", 2 << 20),
      ("agg_small_grads_max_bytes", "1G", 1 << 30),
      ("agg_small_grads_max_bytes", "0", 0),
      ("agg_small_grads_max_group", "1", 1),
      ("agg_small_grads_max_group", "0", 0),
      ("reduce_to_device", "/cpu:1", "/cpu:1"),
      ("worker_devices", "/job:worker/task:0,/job:worker/task:1",
       ("/job:worker/task:0", "/job:worker/task:1")),
      ("worker_devices", "/cpu:0, /cpu:1", ("/cpu:0", "/cpu:1")),
      ("wire", "bfloat16", "bfloat16"), ("wire_scope", "all", "all"),
      ("num_gpus_per_worker", "0", 0), ("num_gpus_per_worker", "8", 8))
  def test_parses(self, name, text, value):
    self.assertEqual(parsed(f"--{name}={text}")[name].value, value)
    self.assertEqual(parsed(f"--{name}", text)[name].value, value)

  @parameterized.parameters(
      ("cross_device_ops", "ncl", "should be one of <auto|multi_worker|nccl|"),
      ("all_reduce_spec", "xrng", "'xrng'.* must be one of .*Did you mean "
       "'xring'"),
      ("all_reduce_spec", "", "empty part; the form is alg"),
      ("all_reduce_spec", "nccl:32k", "nothing follows the limit '32k'"),
      ("all_reduce_spec", "xring#0", r"shards of 'xring' \(0\) must be"),
      ("all_reduce_spec", "ps:2k:xring:1k:ps", "must rise"),
      ("all_reduce_spec", "@/no/such.json", "must name a readable JSON file"),
      *((name, text, rf"`--{name}` \('{text}'\) {WHOLE} {least}")
        for name, least in (("num_packs", 0), ("num_gpus_per_worker", 0),
                            ("agg_small_grads_max_group", 0))
        for text in ("-1", "x", "1.5", "")),
      *(("agg_small_grads_max_bytes", text,
         rf"`agg_small_grads_max_bytes` \('{text}'\) must be a number of bytes "
         "such as 512, 32k") for text in ("-1", "64q", "1.5k", "k", "")),
      ("reduce_to_device", "nonsense", r"\('nonsense'\) must be a device name"),
      ("reduce_to_device", "", "must be a device name"),
      ("worker_devices", "/cpu:0,nonsense", r"\('nonsense'\) must be a device"),
      ("worker_devices", "/cpu:0,", r"\(''\) must be a device name"),
      ("worker_devices", "", "must be a device name"),
      ("wire", "bfloat", "must be None, a codec, or the name of one: .*Did you "
       "mean 'bfloat16'"),
      ("wire_scope", "inside", "must be 'across', .* or 'all'"),
      ("backward_seconds", "-1", r"`--backward_seconds` \(-1.0\) must be a "
       "number of seconds"),
      ("backward_seconds", "soon", "must be a number of seconds"),
      ("on_nonfinite", "drp", "must be None, 'raise' or 'drop'.* Did you mean "
       "'drop'"))
  def test_refuses(self, name, text, message):
    with self.assertRaisesRegex(
        flags.IllegalFlagValueError, rf"flag --{name}=.*{message}"):
      parsed(f"--{name}={text}")

  @parameterized.parameters(
      (),
      ("--all_reduce_spec=nccl#2:32k:pscpu/pscpu#2", "--num_packs=0"),
      ("--all_reduce_spec=auto", "--agg_small_grads_max_bytes=64k",
       "--agg_small_grads_max_group=4"),
      ("--cross_device_ops=one_device", "--reduce_to_device=/cpu:3"),
      ("--worker_devices=/cpu:0,/cpu:1", "--num_gpus_per_worker=0"))
  def test_written_flags_are_read_again(self, *args):
    values = parsed(*args)
    for again in (
        parsed(*values.flags_into_string().splitlines()),
        parsed(*filter(None, (values[name].serialize() for name in NAMES)))):
      self.assertEqual({name: again[name].value for name in NAMES},
                       {name: values[name].value for name in NAMES})

  def test_spec_of_a_file(self):
    path = self.create_tempfile(
        "spec.json", '{"all_reduce_spec": "xring:1k:ps#2"}').full_path
    values = parsed(f"--all_reduce_spec=@{path}")
    self.assertEqual(str(values.all_reduce_spec), "xring:1k:ps#2")
    self.assertEqual(values["all_reduce_spec"].serialize(),
                     "--all_reduce_spec=xring:1k:ps#2")

  def test_a_packed_spec_is_written_as_its_file(self):
    path = self.create_tempfile(
        "spec.json", '{"all_reduce_spec": "ps", "num_packs": 3}').full_path
    values = parsed(f"--all_reduce_spec=@{path}")
    again = parsed(*values.flags_into_string().splitlines())
    self.assertEqual(again.all_reduce_spec, values.all_reduce_spec)
    self.assertEqual(values["all_reduce_spec"].serialize(),
                     f"--all_reduce_spec=@{path}")

  @parameterized.parameters("links", "plans")
  def test_so_is_one_with_links_or_plans(self, key):
    path = self.create_tempfile("spec.json", json.dumps(
        {"all_reduce_spec": "auto", key: FILE[key]})).full_path
    values = parsed(f"--all_reduce_spec=@{path}")
    self.assertEqual(values["all_reduce_spec"].serialize(),
                     f"--all_reduce_spec=@{path}")

  @parameterized.parameters(
      "alg[#shards](:limit:alg[#shards])*, such as 'xring:64k:pscpu/pscpu#2'",
      "a number of bytes, such as 512, 64k or 1m",
      "<auto|multi_worker|nccl|one_device>",
      "a comma-separated list of device names",
      "a device name, such as /gpu:0", "a whole number of at least 0")
  def test_help_has_the_syntax(self, syntax):
    self.assertIn(syntax, " ".join(parsed().get_help().split()))


class CrossDeviceOpsFromFlagsTest(parameterized.TestCase):

  @parameterized.parameters(
      ((), SPEC_AUTO),
      (("--cross_device_ops=auto",), SPEC_AUTO),
      (("--all_reduce_spec=ps",), SPEC_AUTO.replace("auto", "ps")),
      (("--cross_device_ops=multi_worker",),
       SPEC_AUTO.replace("auto", "pscpu/pscpu#2")),
      (("--cross_device_ops=multi_worker", "--all_reduce_spec=xring:64k:ps#2",
        "--num_packs=2", "--agg_small_grads_max_bytes=1k",
        "--agg_small_grads_max_group=3", "--worker_devices=/cpu:0,/cpu:1",
        "--num_gpus_per_worker=0"),
       "MultiWorkerAllReduce(all_reduce_spec='xring:64k:ps#2', num_packs=2, "
       "agg_small_grads_max_bytes=1024, agg_small_grads_max_group=3, "
       "sparse='gather', worker_devices=('/cpu:0', '/cpu:1'), "
       "num_gpus_per_worker=0)"),
      (("--cross_device_ops=nccl",),
       "NcclAllReduce(num_packs=1, sparse='gather')"),
      (("--cross_device_ops=nccl", "--num_packs=0"),
       "NcclAllReduce(num_packs=0, sparse='gather')"),
      (("--cross_device_ops=one_device",),
       "ReductionToOneDevice(reduce_to_device=None)"),
      (("--cross_device_ops=one_device", "--reduce_to_device=/cpu:3"),
       "ReductionToOneDevice(reduce_to_device='/cpu:3')"))
  def test_builds(self, args, text):
    ops = build(*args)
    self.assertEqual(repr(ops), text)
    value = virtual_devices.per_replica([1.0, 2.0])
    (result,) = ops.batch_reduce(tf.distribute.ReduceOp.SUM, [(value, value)])
    self.assertEqual([float(part) for part in result.values], [3.0, 3.0])

  @parameterized.parameters(
      ((), (0, 4096, 7)),
      (("--num_packs=2",), (2, 0, 10)),
      (("--num_packs=0",), (0, 0, 10)),
      (("--agg_small_grads_max_bytes=0",), (0, 0, 10)),
      (("--agg_small_grads_max_bytes=1k",), (0, 1024, 10)),
      (("--agg_small_grads_max_group=3",), (0, 4096, 3)))
  def test_packing_of_a_file_unless_flags_say_how(self, args, packing):
    path = self.create_tempfile("spec.json", json.dumps({
        "all_reduce_spec": "xring", "agg_small_grads_max_bytes": 4096,
        "agg_small_grads_max_group": 7})).full_path
    for choice in ("auto", "multi_worker"):
      ops = build(f"--cross_device_ops={choice}",
                  f"--all_reduce_spec=@{path}", *args)
      self.assertStartsWith(
          repr(ops), "MultiWorkerAllReduce(all_reduce_spec='xring', "
          "num_packs={}, agg_small_grads_max_bytes={}, "
          "agg_small_grads_max_group={}, ".format(*packing))

  def test_packing_leaves_links_and_plans(self):
    path = self.create_tempfile("spec.json", json.dumps(FILE)).full_path
    said = repr(build(f"--all_reduce_spec=@{path}", "--num_packs=3"))
    self.assertStartsWith(
        said, f"MultiWorkerAllReduce(all_reduce_spec='@{path}', num_packs=3")
    self.assertIn("network=MeasuredLinks(inside=None, across=Link(", said)

  def test_packing_without_a_spec(self):
    self.assertStartsWith(
        repr(build("--cross_device_ops=multi_worker", "--num_packs=2")),
        "MultiWorkerAllReduce(all_reduce_spec='pscpu/pscpu#2', num_packs=2, ")

  @parameterized.parameters(
      (("nccl", "--all_reduce_spec=ps"),
       r"`--all_reduce_spec` \(ps\) has no meaning with --cross_device_ops="
       "nccl; leave it out, or use --cross_device_ops=auto or multi_worker"),
      (("nccl", "--agg_small_grads_max_bytes=1k"),
       r"`--agg_small_grads_max_bytes` \(1024\) has no meaning with"),
      (("nccl", "--worker_devices=/cpu:0"), "`--worker_devices` .* no meaning"),
      (("one_device", "--num_packs=0"),
       r"`--num_packs` \(0\) has no meaning with --cross_device_ops=one_device;"
       " .* --cross_device_ops=auto or multi_worker or nccl"),
      (("one_device", "--num_gpus_per_worker=1"), "`--num_gpus_per_worker`"),
      (("auto", "--reduce_to_device=/cpu:0"),
       "`--reduce_to_device` .* --cross_device_ops=one_device"),
      (("multi_worker", "--reduce_to_device=/cpu:0"), "`--reduce_to_device`"),
      (("auto", "--worker_devices=/cpu:0,CPU:0"), "must be distinct"),
      (("one_device", "--reduce_to_device=/gpu:7"),
       r"`reduce_to_device` \('/gpu:7'\) must be a device of this program"))
  def test_refuses(self, args, message):
    tf.config.list_logical_devices()  # Before that, devices aren't known.
    choice, *others = args
    with self.assertRaisesRegex(ValueError, message):
      build(f"--cross_device_ops={choice}", *others)

  def test_values_set_by_a_program(self):
    values = parsed()
    values.all_reduce_spec = "xring#2"
    values.num_packs = 3
    self.assertStartsWith(
        repr(tf_cdops.flags.cross_device_ops_from_flags(values)),
        "MultiWorkerAllReduce(all_reduce_spec='xring#2', num_packs=3")
    values.num_packs = -3
    with self.assertRaisesRegex(ValueError, rf"`num_packs` \(-3\) {WHOLE} 0"):
      tf_cdops.flags.cross_device_ops_from_flags(values)


if __name__ == "__main__":
  absltest.main()
