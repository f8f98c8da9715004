"""Tests of `python -m tf_cdops bench`, as a user runs it."""

import argparse
import json
import os
import pathlib
import tempfile
from typing import Any
from unittest import mock

from absl.testing import absltest
from tests import algorithm_plugin
from tests import cable_support
from tests import python_process

import tf_cdops
from tf_cdops.cli import bench as bench_command
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import sites

_THEIRS = ["TF ReductionToOneDevice", "TF HierarchicalCopy(0)",
           "TF HierarchicalCopy(1)", "TF default"]
_FLOOR = "floor: one AddN"


def bench(*args: str, **kwargs: tuple[str, ...]):
  return python_process.run("-m", "tf_cdops", "bench", *args, **kwargs)


def rows(text: str) -> list[list[str]]:
  """Returns the cells of a printed table, without its head."""
  return [[cell.strip() for cell in line.split("│")[1:-1]]
          for line in text.splitlines() if line.startswith("│")]


def check_refused(test: absltest.TestCase, outcome: Any, message: str) -> None:
  test.assertEqual((outcome.returncode, outcome.stdout), (2, ""),
                   outcome.stderr)
  test.assertRegex(outcome.stderr, message)
  test.assertNotIn("Traceback", outcome.stderr)


def check_wrong(test: absltest.TestCase, results: list[Any]) -> None:
  """With three replicas, an odd number, TensorFlow's trees lose one."""
  for result in results:
    wrong = (3 * result["num_elements"]
             if "HierarchicalCopy" in result["contender"] else 0)
    test.assertEqual(result["wrong"], wrong, result["contender"])


class ThreeDevicesTest(absltest.TestCase):
  """In one process, one after another."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
    plugin = algorithm_plugin.install(cls.folder)
    pathlib.Path(cls.path("spec.json")).write_text(
        '{"all_reduce_spec": "ps", "num_packs": 1}')
    commands = {
        "sweep": ["--min=100", "--max=3k", "--factor=5", "--steps=3",
                  "--specs=auto,xring#2,auto", f"--out={cls.path('out.json')}",
                  f"--plot={cls.path('chart.png')}"],
        "eager": ["--json", "--eager", "--sizes=2x1k,1x64k", "--dtype=float16",
                  "--specs=ps", "--notensorflow", "--steps=2",
                  f"--plot={cls.path('bars.svg')}"],
        "file": ["--json", "--sizes=20x400", "--steps=1", "--notensorflow",
                 f"--specs=ps,@{cls.path('spec.json')},sums_nothing"],
        "wires": ["--json", "--sizes=2x8k", "--steps=1", "--notensorflow",
                  "--specs=ps,auto", "--wire=int8,none,bfloat16",
                  "--wire_scope=all"],
        "engine": ["--specs=collective", "--wire=bfloat16",
                   "--wire_scope=all"],
        "zip": ["--wire=zip"],
        "nccl": ["--specs=ps:1k:nccl"],
        "memory": ["--sizes=64x16g"],
    }
    cls.outcomes = dict(zip(commands, python_process.run_commands(
        [["bench", "--devices=3", *args] for args in commands.values()],
        first_on_path=(plugin,), extras=("matplotlib",)), strict=True))

  @classmethod
  def path(cls, name: str) -> str:
    return os.path.join(cls.folder, name)

  def test_sweep(self):
    outcome = self.outcomes["sweep"]
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertIn("all-reduce among 3 CPU devices, in a tf.function",
                  outcome.stdout)
    table = rows(outcome.stdout)
    everyone = ["auto", "xring#2", *_THEIRS, _FLOOR]
    self.assertEqual(
        [row[0] for row in table],
        ["100: 25 float32", *everyone, "500: 125 float32", *everyone,
         "2500: 625 float32", *everyone])
    table = [row for row in table if row[1]]
    content = json.loads(pathlib.Path(self.path("out.json")).read_text())
    self.assertLen(content["devices"], 3)
    self.assertFalse(content["interrupted"])
    check_wrong(self, content["results"])
    for row, result in zip(table, content["results"], strict=True):
      self.assertEqual(row[6], f"{result['wrong']:,}")
      self.assertEqual(result["time"]["samples"], 3)
      times = [float(cell) for cell in row[1:4]]
      self.assertEqual(times, sorted(times))
    self.assertStartsWith(pathlib.Path(self.path("chart.png")).read_bytes(),
                          b"\x89PNG")

  def test_wires(self):
    outcome = self.outcomes["wires"]
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    content = json.loads(outcome.stdout)
    found = {result["contender"]: (result["wrong"], result["tolerance"])
             for result in content["results"]}
    blocks = ("within 0.8% of the sum of the largest magnitudes of each 1,024, "
              "and as much again of the step before")
    self.assertEqual(found, {
        "ps": (0, None), "ps, int8 (all)": (0, blocks),
        "ps, bfloat16 (all)": (0, "within 0.79% of the sum of magnitudes"),
        # On one machine's CPUs a wire can't pay.
        "auto": (0, None), "auto, int8 (all)": (0, None),
        "auto, bfloat16 (all)": (0, None), _FLOOR: (0, None)})
    self.assertContainsSubset([
        f"ps, int8 (all): #wrong counts what isn't {blocks}.",
        "auto, int8 (all): no message is encoded here; `tf_cdops explain` says "
        "why."], content["notes"])

  def test_wrong_wires(self):
    check_refused(self, self.outcomes["zip"], r"`wire` \('zip'\) must be None")
    check_refused(self, self.outcomes["engine"],
                  r"`wire` \('bfloat16 \(all\)'\) can't be had with "
                  "'collective'")

  def test_load_in_eager_code(self):
    outcome = self.outcomes["eager"]
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    content = json.loads(outcome.stdout)
    self.assertTrue(content["eager"])
    for result, name in zip(content["results"], ["ps", _FLOOR], strict=True):
      self.assertEqual(
          [result[key] for key in ("contender", "num_bytes", "tensors",
                                   "dtype", "wrong", "nodes")],
          [name, 67584, 3, "float16", 0, 0])
    self.assertIn("<svg", pathlib.Path(self.path("bars.svg")).read_text())

  def test_spec_of_a_file_and_a_wrong_result_of_ours(self):
    outcome, file = self.outcomes["file"], f"@{self.path('spec.json')}"
    self.assertEqual((outcome.returncode, outcome.stderr), (1, ""))
    results = {r["contender"]: r for r in json.loads(outcome.stdout)["results"]}
    # A file's spec is packed as the file says.
    self.assertLess(results[file]["nodes"], results["ps"]["nodes"])
    # Three devices with 20 tensors of 100 elements, none of them a sum.
    self.assertEqual(
        {name: r["wrong"] for name, r in results.items()},
        {"ps": 0, file: 0, "sums_nothing": 3 * 20 * 100, _FLOOR: 0})

  def test_refused_before_measuring(self):
    check_refused(
        self, self.outcomes["nccl"],
        r"^tf_cdops bench: `algorithm` \('nccl'\) can't run on .*: nccl needs "
        r"GPU devices only; use 'ps'.*\n$")
    check_refused(
        self, self.outcomes["memory"],
        r"`64x16g` \(1024g on each of 3 devices\) must fit in memory: that "
        r"takes about 12288g, and \d+[gm] are available")


class BenchTest(absltest.TestCase):

  def test_workers(self):
    bandwidth = "1gbit" if cable_support.why_not() is None else None
    cables = [f"--bandwidth={bandwidth}"] if bandwidth else []
    # Three: with an odd number, halving and doubling has steps of its own.
    outcome = bench("--json", "--workers=3", "--min=1k", "--max=4k",
                    "--specs=auto,xring,rechd", "--steps=2", *cables)
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    content = json.loads(outcome.stdout)
    self.assertEqual(content["bandwidth"], bandwidth)
    self.assertEqual([name.split("/")[3] for name in content["devices"]],
                     ["task:0", "task:1", "task:2"])
    self.assertEmpty(content["notes"])
    self.assertEqual(
        [r["contender"] for r in content["results"]],
        ["auto", "xring", "rechd", *_THEIRS] * 2)
    check_wrong(self, content["results"])

  def test_several_rates(self):
    if cable_support.why_not():
      self.skipTest(f"no cables: {cable_support.why_not()}")
    folder = self.create_tempdir().full_path
    outcome = bench(
        "--workers=2", "--bandwidth=1gbit,200mbit", "--sizes=256k",
        "--specs=auto,xring", "--steps=2", f"--out={folder}/rates.json",
        f"--plot={folder}/rates.svg", extras=("matplotlib",))
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    titles = [line for line in outcome.stdout.splitlines()
              if line.startswith("all-reduce")]
    self.assertEqual(titles, [
        f"all-reduce among 2 CPU devices of 2 workers with cables of {rate}, "
        "in a tf.function" for rate in ("200mbit", "1gbit")])
    content = json.loads(pathlib.Path(f"{folder}/rates.json").read_text())
    self.assertEqual(content["bandwidth"], "1gbit,200mbit")
    self.assertEmpty(content["notes"])
    rate = {"200mbit": 200e6, "1gbit": 1e9}
    self.assertEqual(
        [[r[key] for key in ("contender", "bandwidth", "bits_per_second",
                             "least_seconds", "wrong")]
         for r in content["results"]],
        [[name, text, rate[text], 8 * (256 << 10) / rate[text], 0]
         for text in rate for name in ("auto", "xring", *_THEIRS)])
    measured = [row for row in rows(outcome.stdout) if row[1]]
    for row, result in zip(measured, content["results"], strict=True):
      of_least = result["time"]["median"] / result["least_seconds"]
      self.assertEqual(row[7], f"{of_least:.2f}")
    self.assertIn("<!-- rate of each worker's cable -->",
                  pathlib.Path(f"{folder}/rates.svg").read_text())

  def test_a_cluster_that_runs(self):
    with tf_cdops.LocalCluster(2, 2) as cluster:
      addresses = cluster.as_dict()["worker"]
      config = json.dumps({"cluster": cluster.as_dict(),
                           "task": {"type": "worker", "index": 1}})
      # Workers remember collectives; the next program's mustn't be mixed up.
      for given, size in ((",".join(addresses), "1k"), ("TF_CONFIG", "4k")):
        with mock.patch.dict(os.environ, TF_CONFIG=config):
          outcome = bench("--json", f"--cluster={given}", f"--sizes={size}",
                          "--specs=auto,collective", "--notensorflow",
                          "--steps=1")
        self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
        content = json.loads(outcome.stdout)
        self.assertEqual([name.split("/")[3] for name in content["devices"]],
                         ["task:0", "task:0", "task:1", "task:1"])
        self.assertEmpty(content["notes"])
        self.assertEqual(
            [(r["contender"], r["wrong"]) for r in content["results"]],
            [("auto", 0), ("collective", 0)])

  def test_interrupt_shows_what_there_is(self):
    folder = self.create_tempdir().full_path
    plugin, out = algorithm_plugin.install(folder), f"{folder}/out.json"
    outcome = bench("--min=1k", "--max=64k", "--factor=64", "--steps=2",
                    "--specs=ps,is_interrupted", "--notensorflow",
                    f"--out={out}", first_on_path=(plugin,))
    self.assertEqual(outcome.returncode, 130)
    self.assertEqual(outcome.stderr,
                     "Interrupted: this is what there was so far.\n")
    self.assertEqual([row[0] for row in rows(outcome.stdout)],
                     ["1k: 256 float32", "ps", "is_interrupted", _FLOOR])
    content = json.loads(pathlib.Path(out).read_text())
    self.assertTrue(content["interrupted"])
    self.assertLen(content["devices"], 4)  # The default, without GPUs.

  def test_help_teaches(self):
    outcome = bench("--help")
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    text = " ".join(outcome.stdout.split())
    for words in ("their steps interleaved", "--specs LIST", "default: 64m",
                  "--sizes LIST", "algbw: bytes reduced a second"):
      self.assertIn(words, text)


class RatesTest(absltest.TestCase):

  def test_auto_goes_by_the_rate(self):
    args = argparse.Namespace(bandwidth="1gbit,100mbit,300mbit",
                              tensorflow=False)
    cluster = tf_cdops.LocalCluster(2, bandwidth="100mbit")
    site = sites.Site(("/job:worker/replica:0/task:0/device:CPU:0",
                       "/job:worker/replica:0/task:1/device:CPU:0"),
                      "100mbit", link=cluster.link, cluster=cluster)
    links = []
    with mock.patch.object(contenders, "of_spec", autospec=True) as of_spec:
      for rated in bench_command._at_each_rate(args, site):
        bench_command._field(args, [bench_command._Way("auto", None)],
                             rated)
        links.append((cluster.bandwidth,
                      of_spec.call_args.kwargs["link"].name))
    self.assertEqual(links, [(rate, rate)
                             for rate in ("100mbit", "300mbit", "1gbit")])


class BadInputTest(absltest.TestCase):

  def test_before_tensorflow_is_loaded(self):
    cases = [
        (["--devices=65"], r"`--devices` \(65\) must be from 1 to 64"),
        (["--devices=0"], r"`--devices` \(0\) must be from 1 to 64"),
        (["--workers=-1"], r"`--workers` \(-1\) must be from 0 to 64"),
        (["--workers=8", "--devices=9"],
         r"`--workers` \(8\) with `--devices` \(9\) must be at most 64 "
         "devices"),
        (["--workers=2", "--device_type=GPU"],
         r"`--device_type` \(GPU\) must be CPU with --workers"),
        (["--device_type=TPU"], "argument --device_type: invalid choice"),
        (["--min=2k", "--max=1k"],
         r"`--min` \(2k\) must be at least 4, a float32, and at most `--max` "
         r"\(1k\)"),
        (["--min=1", "--max=1k"],
         r"`--min` \(1\) must be at least 4, a float32"),
        (["--max=1q"], r"`--max` \('1q'\) must be a number of bytes"),
        (["--factor=1"],
         r"`--factor` \(1\) must be a whole number of at least "),
        (["--factor=x"], r"`--factor` \('x'\) must be a whole number of at "),
        (["--sizes=4x1k", "--max=1m"], r"`--max` \(1m\) must be left out where "
         "sizes or a model are given"),
        (["--steps=0"],
         r"`--steps` \(0\) must be a whole number of at least 1"),
        (["--specs=ps,xrng"], r"\('xrng'\) must be .* Did you mean 'xring'"),
        (["--specs=ps:1k"],
         r"`--specs` \('ps:1k'\) must end with an algorithm"),
        (["--specs=", "--notensorflow"],
         r"`--specs` \(''\) must name something to measure"),
        (["--eager", "--workers=2"], "`--eager` measures the devices of this "
         "process; leave out --workers"),
        (["--eager", "--cluster=a:1"], "`--eager` measures the devices of this "
         "process; leave out --cluster"),
        (["--cluster=a:1,b:2", "--workers=2"], r"`--workers` \(2\) must be "
         "left out with --cluster: it starts workers, and those of "),
        (["--cluster=a:1", "--bandwidth=1gbit"],
         r"`--bandwidth` \(1gbit\) must come with --workers, whose"),
        (["--cluster=TF_CONFIG"], r"`--cluster` \(TF_CONFIG\) must have that "
         "variable, which isn't set; set it, or give addresses"),
        (["--cluster="], r"`--cluster` \(''\) must be addresses, such as"),
        (["--out=/no/such/folder/x"],
         r"`--out` \('/no/such/folder/x'\) must be in a folder that is there"),
        (["--plot=/"], r"`--plot` \('/'\) must name a file"),
        (["--plot=chart.txt"],
         r"`--plot` \('chart.txt'\) must end with \.pdf, \.png, \.svg"),
    ]
    outcomes = python_process.run_commands(
        [["bench", *args] for args, _ in cases], extras=("matplotlib",))
    for (args, message), outcome in zip(cases, outcomes, strict=True):
      with self.subTest(args=args):
        check_refused(self, outcome, message)
        self.assertFalse(outcome.loaded_tensorflow)

  def test_a_chart_of_several_rates_and_sizes(self):
    outcome, = python_process.run_commands(
        [["bench", "--workers=2", "--bandwidth=100mbit,1gbit",
          "--plot=x.png"]],
        before="from tf_cdops.cluster import cables\n"
               "cables.check_programs = lambda: None", extras=("matplotlib",))
    check_refused(
        self, outcome,
        r"^tf_cdops bench: `--plot` \('x\.png'\) must show one load where "
        r"`--bandwidth` \(100mbit,1gbit\) has several rates; give a load "
        r"\(--sizes=16m, or --model=ResNet50\), or one rate\.\n$")
    self.assertFalse(outcome.loaded_tensorflow)

  def test_without_matplotlib(self):
    check_refused(
        self, bench("--plot=chart.png"),
        r"^tf_cdops bench: `--plot` \('chart.png'\) needs matplotlib; install "
        r"it with `pip install 'tf-cdops\[plot\]'`\.\n$")


if __name__ == "__main__":
  absltest.main()
