"""Tests of `tf_cdops explain` and of the schedules that it prints."""

import contextlib
import io
import json
import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from tests import all_reduce_contract
from tests import python_process

from tf_cdops import registry
from tf_cdops.cli import main
from tf_cdops.explaining import schedule
from tf_cdops.planning import planner
from tf_cdops.registry import proof

workers_of = all_reduce_contract.workers_of


def run(*args: str, **kwargs: str):
  return python_process.run("-m", "tf_cdops", "explain", *args, **kwargs)


class ExplainTest(parameterized.TestCase):

  def test_report(self):
    done = run("--all_reduce_spec=xring:64k:pscpu/pscpu#2", "--workers=2",
               "--devices=4", "--inside=pcie", "--bandwidth=3GB/s")
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    self.assertRegex(done.stdout, r"(?m)^devices +2 workers with 4 GPUs each")
    self.assertIn("pcie (10 µs, 20 GB/s) inside workers, as given (200 µs, "
                  "3 GB/s) across", done.stdout)
    self.assertRegex(done.stdout, r"(?m)^xring +1 +500 +500 +500 KiB +14 ")

  def test_the_devices_that_are_here(self):
    several, alone, given = python_process.run_commands([
        ["explain", "--device_type=CPU", "--workers=2", "--sizes=1k"],
        ["explain", "--device_type=CPU"],
        ["explain", "--devices=2", "--sizes=4"]])
    for done in (several, alone, given):
      self.assertEqual((done.returncode, done.stderr), (0, ""))
    self.assertRegex(several.stdout, r"(?m)^devices +2 workers with 1 CPU each")
    self.assertIn("One device alone has nothing to send.\n"
                  "Try --devices=4 --workers=2", alone.stdout)
    self.assertIn("The tensors are made up (500x1k,4x16m); give", alone.stdout)
    self.assertNotIn("made up", given.stdout)
    self.assertNotIn("Try --devices", given.stdout)

  def test_devices_and_links_that_nobody_gave(self):
    done = run("--devices=4")
    self.assertRegex(done.stdout, r"(?m)^assumed +GPUs: the default with --dev")
    self.assertIn(
        "GPUs: the default with --devices, whatever this machine has "
        "(--device_type=CPU explains for CPUs); nvlink inside workers: what "
        "GPUs commonly have, in orders of magnitude, not measured (change "
        "with --inside)",
        " ".join(done.stdout.split()))

  def test_assumed(self):
    """By flag; and text has the same as JSON."""
    cases = [
        (["--devices=2", "--workers=2"],
         {"device_type": "GPUs", "inside": "nvlink inside workers",
          "across": "100gbe across workers"}),
        (["--device_type=CPU"],
         {"devices": "1 CPU a worker", "inside": "memory inside workers"}),
        (["--devices=2", "--device_type=CPU", "--latency=1us"],
         {"inside": "memory inside workers but for --latency"}),
        (["--devices=2", "--workers=2", "--device_type=GPU", "--inside=pcie",
          "--bandwidth=1GB/s"],
         {"across": "100gbe across workers but for --bandwidth"}),
        (["--devices=2", "--device_type=GPU", "--latency=1us",
          "--bandwidth=1GB/s"], {}),
        (["--devices=2", "--workers=2", "--device_type=GPU", "--inside=pcie",
          "--across=10gbe"], {}),
    ]
    outcomes = iter(python_process.run_commands(
        [["explain", "--sizes=4", *args, *output] for args, _ in cases
         for output in ([], ["--json"])]))
    for args, expected in cases:
      with self.subTest(args=args):
        text = " ".join(next(outcomes).stdout.split())
        assumed = json.loads(next(outcomes).stdout)["assumed"]
        for one in assumed:
          self.assertIn(f"{one['value']}: {one['why']} ({one['change']})", text)
        self.assertEqual("assumed" in text, bool(assumed))
        self.assertEqual({one["what"]: one["value"] for one in assumed},
                         expected)

  def test_a_model(self):
    done = run("--devices=2", "--model=MobileNetV2", "--json")
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    data = json.loads(done.stdout)
    self.assertEqual((data["load"], data["tensors"]), ("MobileNetV2", 158))

  def test_json_is_all_there_is(self):
    done = run("--devices=2", "--workers=2", "--json", "--schedule",
               "--all_reduce_spec=ps", "--latency=5us", "--device_type=CPU",
               "--agg_small_grads_max_bytes=1k")
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    data = json.loads(done.stdout)
    self.assertAlmostEqual(data["network"]["across"]["latency_seconds"], 5e-6,
                           places=12)
    self.assertLen(data["buckets"], 54)
    self.assertLen(data["schedule"]["steps"], 2)
    self.assertEqual(data["device_types"], ["CPU"])

  def test_groups_of_none(self):
    data = json.loads(run("--devices=2", "--json", "--sizes=9x4",
                          "--agg_small_grads_max_group=0").stdout)
    self.assertLen(data["buckets"], 9)

  @parameterized.parameters(
      ((), 3), (("--num_packs=0",), 202), (("--num_packs=1",), 1),
      (("--agg_small_grads_max_bytes=4",), 202),
      (("--agg_small_grads_max_group=50",), 6))
  def test_packing_of_a_file(self, given, buckets):
    path = self.create_tempfile("spec.json", json.dumps({
        "all_reduce_spec": "ps", "agg_small_grads_max_bytes": 1024,
        "agg_small_grads_max_group": 200})).full_path
    done = run("--devices=4", "--device_type=CPU", "--sizes=200x1k,2x4m",
               "--json", f"--all_reduce_spec=@{path}", *given)
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    self.assertLen(json.loads(done.stdout)["buckets"], buckets)

  def test_links_as_they_were_measured(self):
    path = self.create_tempfile("links.json", json.dumps({"summary": {
        "inside": None, "across": {"latency_seconds": 2e-4,
                                   "bytes_per_second": 1e9,
                                   "message_seconds": 6e-5}}})).full_path
    args = ["--devices=2", "--workers=2", "--device_type=GPU",
            f"--network=@{path}"]
    data = json.loads(run("--json", *args).stdout)
    self.assertEqual(
        {which: data["network"][which]["name"]
         for which in ("inside", "across")},
        {"inside": "nvlink", "across": "measured across"})
    self.assertEqual(data["network"]["across"]["message_seconds"], 6e-5)
    self.assertEqual([one["what"] for one in data["assumed"]], ["inside"])
    data = json.loads(run("--json", *args, "--inside=pcie",
                          "--bandwidth=3GB/s").stdout)
    self.assertEqual(data["network"]["inside"]["name"], "pcie")
    self.assertEqual(data["network"]["across"]["latency_seconds"], 2e-4)
    self.assertEqual(data["network"]["across"]["bytes_per_second"], 3e9)
    self.assertEmpty(data["assumed"])

  def test_links_of_the_specs_file(self):
    path = self.create_tempfile("tuned.json", json.dumps({
        "all_reduce_spec": "auto", "links": {
            "inside": None, "across": {"latency_seconds": 2e-4,
                                       "bytes_per_second": 1e9,
                                       "message_seconds": 6e-5}}})).full_path
    args = ["--devices=2", "--workers=2", "--device_type=GPU",
            f"--all_reduce_spec=@{path}"]
    self.assertRegex(run(*args).stdout, r"(?s)links +nvlink .* inside workers, "
                     r"measured\s+across \(200 µs, 1 GB/s\) across")
    data = json.loads(run(*args, "--json", "--across=10gbe").stdout)
    self.assertEqual(data["network"]["across"]["name"], "10gbe")

  def test_a_plan_is_written_and_pinned(self):
    path = os.path.join(self.create_tempdir().full_path, "plan.json")
    args = ["--devices=2", "--workers=2", "--device_type=CPU",
            "--sizes=20x1k,2x4m"]
    done = run(*args, "--across=1gbe", f"--plan={path}")
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    self.assertEndsWith(done.stdout, f"The plan is in {path}; pin it with "
                        f"--all_reduce_spec=@{path}\n")
    first = json.loads(run(*args, "--across=1gbe", "--json").stdout)
    pinned = f"--all_reduce_spec=@{path}"
    data = json.loads(run(*args, pinned, "--num_packs=1", "--across=infiniband",
                          "--json").stdout)
    self.assertEqual(data["buckets"], first["buckets"])
    self.assertEqual((first["pinned"], data["pinned"]), (False, True))
    self.assertEqual({part["why"] for part in data["parts"]},
                     {f"pinned by {path}"})
    self.assertIn("auto", [other["spec"] for other in data["others"]])
    data = json.loads(run(*args, pinned, "--json").stdout)
    self.assertEqual(data["network"], first["network"])
    self.assertIn(f"\n> @{path} ", run(*args, pinned).stdout)
    other = run(*args[1:], "--devices=3", pinned)
    self.assertIn("Not pinned: unlike the nearest plan of", other.stdout)
    self.assertIn("workers with 2 devices each.", " ".join(
        other.stdout.split()))

  def test_latency_of_one_worker_is_that_inside(self):
    data = json.loads(run("--devices=2", "--json", "--latency=2ms").stdout)
    self.assertEqual(data["network"]["inside"]["latency_seconds"], 2e-3)

  def test_schedule(self):
    done = run("--devices=3", "--all_reduce_spec=ps", "--sizes=3x4", "--bucket",
               "1")
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    self.assertIn("The steps of bucket 1:\n\nps on 3 devices", done.stdout)
    # The second bucket is summed on the second device.
    self.assertIn("0 → 1: 0-2(1)   2 → 1: 0-2(1)", done.stdout)
    self.assertIn("on 1: 0-2(3)", done.stdout)

  def test_a_bucket_is_shown(self):
    done = run("--devices=2", "--all_reduce_spec=ps", "--sizes=4", "--bucket=0")
    self.assertIn("The steps of bucket 0:\n\nps on 2 devices", done.stdout)

  def test_columns(self):
    done = run("--devices=4", "--workers=2", "--schedule", columns="60")
    self.assertLessEqual(max(map(len, done.stdout.splitlines())), 60)

  def test_html(self):
    path = pathlib.Path(self.create_tempdir().full_path) / "page.html"
    done = run("--devices=3", f"--html={path}")
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    self.assertEndsWith(done.stdout, f"The page is in {path}.\n")
    self.assertStartsWith(path.read_text(encoding="utf-8"), "<!doctype html>")

  def test_help(self):
    done = run("--help")
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    self.assertRegex(done.stdout, r"(?s)Says what a spec will do.*--sizes LIST")


class WrongUsageTest(parameterized.TestCase):

  @parameterized.parameters(
      (["--devices=0"], r"`--devices` \(0\) must be from 1 to 1,024\."),
      (["--workers=0"], r"`--workers` \(0\) must be from 1 to 4,096\."),
      (["--workers=4096", "--devices=1024"],
       r"`--workers` \(4096\) times `--devices` \(1024\) must be at most 65"),
      (["--num_packs=-1"], r"`--num_packs` \(-1\) must be from 0 to"),
      (["--agg_small_grads_max_group=-1"], r"max_group` \(-1\) must be from 0"),
      (["--agg_small_grads_max_bytes=x"],
       r"`--agg_small_grads_max_bytes` \('x'\) must be a number of bytes"),
      (["--sizes=x"], r"`--sizes` \('x'\) must be"),
      (["--sizes=3"], "must be a multiple of 4"),
      (["--latency=5"], r"`--latency` \('5'\) must be a positive number with "
       r"a unit \(s, ms, us, µs, ns\), such as 5us"),
      (["--network=x.json"], r"`--network` \('x.json'\) must be @ and a file, "
       "such as @links.json"),
      (["--network=@x.json"], r"`--network` \('x.json'\) must be a readable "
       "JSON file"),
      (["--latency=0s"], r"`--latency` \('0s'\) must be a positive"),
      (["--bandwidth=1mph"], r"`--bandwidth` \('1mph'\) must be a positive"),
      (["--bandwidth=9mbps"], r"`--bandwidth` \('9mbps'\) .* as 500mbit or"),
      (["--inside=nvlnk"], r"`--inside` \('nvlnk'\).*Did you mean 'nvlink'"),
      (["--across=x"], r"`--across` \('x'\) must be one of nvlink"),
      (["--sizes=2x4", "--bucket=2", "--all_reduce_spec=ps"],
       r"`--bucket` \(2\) must be one of the plan's 2: from 0 to 1"),
      (["--sizes=4", "--bucket=1"],
       r"`--bucket` \(1\) must be 0, the plan's only one\.$"),
      (["--across=10gbe"], r"`--across` \('10gbe'\) must come with several "
       r"--workers: .*; leave it out, or give --workers=2\.$"),
      (["--num_packs=2", "--agg_small_grads_max_bytes=1k"],
       r"`--agg_small_grads_max_bytes` \(1k\) must be left out beside "
       r"--num_packs, .*; give one of them\.$"),
      (["--agg_small_grads_max_group=5"],
       r"`--agg_small_grads_max_group` \(5\) must come with "),
      (["--sizes=999999999999999t"],
       "bytes may end in k, m or g, up to 1024g"),
      (["--sizes=-1k"], "'-1k' isn't: both are whole numbers"),
      (["--plan=/"], r"`--plan` \('/'\) must name a file, not a folder"),
      (["--html="], r"`--html` \(''\) must name a file, and is empty"),
      (["--bucket=-1"], r"`--bucket` \(-1\) must be one of"),
      (["--all_reduce_spec=ps:1k:xrng"], r"`--all_reduce_spec` \('ps:1k:xrng'"
       r"\): `algorithm` \('xrng'\) must .* Did you mean 'xring'\?$"),
      (["--all_reduce_spec=xring:"], "has an empty part"),
      (["--all_reduce_spec=nccl", "--workers=2"], "can't leave its worker"),
      (["--all_reduce_spec=psgpu", "--device_type=CPU"], "needs GPU devices"),
      (["--html=/dev/null", "--plan=/dev/null"],
       r"`--plan` \('/dev/null'\) must be another file than that of `--html`"),
      (["--html=/no/such/page"], r"`--html` \('/no/such/page'\) must be in a "
       "folder that is there"),
      (["--html=/"], r"`--html` \('/'\) must name a file, not a folder"))
  def test_one_line(self, args, regex):
    if not any(arg.startswith("--devices") for arg in args):
      args = [*args, "--devices=2"]
    code, out, err = self.run_here("explain", *args)
    self.assertEqual((code, out), (2, ""))
    self.assertRegex(err, f"^tf_cdops explain: .*{regex}")
    self.assertLen(err.splitlines(), 1)

  def run_here(self, *args: str) -> tuple[int, str, str]:
    with (contextlib.redirect_stdout(io.StringIO()) as out,
          contextlib.redirect_stderr(io.StringIO()) as err):
      code = main.main(args)
    return code, out.getvalue(), err.getvalue()

  def test_one_load(self):
    done = run("--devices=2", "--sizes=4", "--model=VGG16")
    self.assertEqual((done.returncode, done.stdout), (2, ""))
    self.assertIn("--model: not allowed with argument --sizes", done.stderr)


class ScheduleTest(parameterized.TestCase):

  def of(self, name, *sizes, shards=1, turn=0, kind="GPU"):
    return schedule.for_bucket(
        planner.Bucket((0,), name, shards, turn, 4),
        workers_of(*sizes, kind=kind))

  @parameterized.parameters(
      "xring", "rechd", "ps", "pscpu", "hierarchical_copy", "nccl/xring",
      "pscpu/pscpu", "xring/rechd", "collective")
  def test_all_hold_everything_in_the_end(self, name):
    for sizes in ((2, 2), (4, 4), (3, 3, 3), (3, 1)):
      for shards in (1, 3):
        steps = self.of(name, *sizes, shards=shards)
        p = sum(sizes)
        self.assertFalse(steps.stands_in)
        self.assertEqual({count for row in steps.steps[-1].held[:p]
                          for count in row}, {p}, (name, sizes))
        self.assertEqual({count for row in steps.start[:p] for count in row},
                         {1})

  def test_is_what_the_trace_has(self):
    steps = self.of("xring", 2, 2)
    trace = proof.prove(registry.lookup("xring"), workers_of(2, 2), 4)
    self.assertLen(steps.steps, trace.steps)
    self.assertEqual(sum(len(step.transfers) for step in steps.steps),
                     len(trace.transfers))
    self.assertEqual([sum(t.across for t in step.transfers)
                      for step in steps.steps], [2] * 6)
    first = steps.steps[0].transfers[0]
    self.assertEqual(first, schedule.Transfer(
        1, 2, (schedule.Piece(0, 1, 1),), True))

  def test_names(self):
    self.assertEqual(self.of("pscpu", 2, 2).places,
                     ("0:0", "0:1", "1:0", "1:1", "0:cpu"))
    self.assertEqual(self.of("pscpu", 2).places, ("0", "1", "cpu"))
    self.assertEqual(self.of("pscpu", 2, kind="CPU").places, ("0", "1"))

  def test_large_ones_are_stood_in_for(self):
    steps = self.of("xring", *[8] * 64)
    self.assertTrue(steps.stands_in)
    self.assertEqual((steps.devices, max(steps.workers)), (16, 3))
    self.assertIn("Fewer devices or shards than asked", schedule.text(steps))
    steps = self.of("ps", 2, shards=100)
    self.assertEqual((steps.shards, steps.stands_in), (4, True))

  def test_text(self):
    self.assertEqual(schedule.text(self.of("ps", 2)), """\
ps on 2 devices, 1 shard: 2 steps. The vector has 2 parts; 3(2) is part 3, \
summed over 2 replicas.

step 1: 1 transfer
    1 → 0: 0-1(1)
  sums there now are:
    on 0: 0-1(2)

step 2: 1 transfer
    0 → 1: 0-1(2)""")
    self.assertIn("step 1: nccl sums, out of sight",
                  schedule.text(self.of("nccl", 4)))


if __name__ == "__main__":
  absltest.main()
