"""Tests of the benchmark suite: its verdicts, its report, one tiny cell."""

import argparse
import dataclasses
import json
import pathlib
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from benchmarks import cells
from benchmarks import children
from benchmarks import node_count
from benchmarks import report
from benchmarks import targets
from benchmarks import tasks
from benchmarks import workloads
from tests import python_process
from tests import virtual_devices

from tf_cdops.cli import loads
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps

_CELL = cells.Cell(cells.GRAPH, "resnet", 2)


def result(contender, family, median, wrong=0, **built):
  return cells.Result(median, median, median, 20, 0.9 * median, 1.2 * median,
                      contender, family, wrong, **built)


def measured(ours=0.010, wrong=0, cell=_CELL):
  return cells.Measured(cell, (
      result("auto", cells.OURS, ours, wrong, build_seconds=0.1, nodes=100),
      result("xring", cells.OURS, 0.001),
      result("A", cells.TENSORFLOW, 0.020, build_seconds=0.2, nodes=1000),
      result("B", cells.TENSORFLOW, 0.011, build_seconds=0.9, nodes=200),
      result("loses", cells.TENSORFLOW, 0.001, wrong=7, nodes=1),
      result("floor", cells.FLOOR, 0.009)))


def content(*all_measured):
  return {"date": "today", "command": "suite", "seconds": 60.0, "quick": False,
          "interrupted": False, "machine": {"cores": "2"}, "notes": [],
          "failed": [], **{section: [] for section in tasks.SECTIONS},
          "cells": [one.to_dict() for one in all_measured]}


class TargetsTest(parameterized.TestCase):

  def test_every_target_has_cells(self):
    for target in targets.TARGETS:
      with self.subTest(target.text):
        self.assertLen([c for c in cells.all_cells() if target.covers(c)],
                       len(target.loads) * len(target.devices))

  def test_against_the_best_that_is_right(self):
    found = {v.target.text: v for v in targets.judge([measured()])
             if v.cell == _CELL}
    self.assertEqual(
        {text: (v.rival, round(v.ratio, 2), v.met)
         for text, v in found.items()},
        {"resnet, N = 2": ("B", 0.91, True),
         "resnet, N = 2, of the floor": ("floor", 1.11, True),
         "nodes, resnet, every N, of the leanest": ("B", 0.5, False),
         "build time, resnet and small, of the quickest": ("A", 0.5, False)})

  @parameterized.parameters((0.011, 0, True), (0.0111, 0, False),
                            (0.010, 1, False))
  def test_met(self, ours, wrong, met):
    verdict = targets.judge([measured(ours, wrong)])[0]
    self.assertEqual((verdict.met, verdict.wrong), (met, wrong))

  def test_not_measured(self):
    for verdict in targets.judge([]):
      self.assertIsNone(verdict.met)


class ReportTest(absltest.TestCase):

  def test_unmet_targets_come_first(self):
    text = report.text(content(measured()), None)
    unmet, met, missing = (text.index(f"### {title}") for title in (
        "Not met", "Met", "Not measured"))
    self.assertBetween(met, unmet, missing)
    self.assertIn("2 met, 2 NOT met, 24 not measured", text)
    self.assertIn("| resnet, N = 2 | graph/resnet/2 | 10.0 ms | 11.0 ms | B "
                  "| 0.91 | 0.68 and 1.21 | ≤ 1 | met | 0 |",
                  text[met:missing])
    self.assertIn("| 100 | 200 | B | 0.50 |  | ≤ 0.4 | **NOT** | 0 |",
                  text[unmet:met])

  def test_all_sections(self):
    full = content(measured()) | {
        "interrupted": True, "failed": ["x: y"],
        "memory": [{"contender": "auto", "load": "bert", "devices": 4,
                    "num_bytes": 100_000_000, "extra": 150_000_000,
                    "kept": 50_000_000, "largest": 10_000_000}],
        "scaling": [{"spec": "auto", "tensors": 50, "devices": 2, "nodes": 9,
                     "predicted": 8, "build_seconds": 0.5, "median": 0.002,
                     "wrong": 0}],
        "explaining": [{"workers": 512, "devices": 8, "seconds": 6.0}],
        "crossing": [{"spec": "auto", "explained": 5, "counted": 5}]}
    text = report.text(full, "scaling.png")
    for line in ("interrupted", "**Failed:** x: y",
                 "| bert | 4 | auto | 150 | 1.50 | 50 | 0.50 |",
                 "a step's extra | 150 MB | ≤ 107 MB | **NOT** |",
                 "| `auto` | 2 | 50 | 9 | 8 | 0.500 | 2.0 | 0 |",
                 "(scaling.png)", "| 6.0 s | ≤ 5 s | **NOT** |",
                 "| 0 of 1 graphs | all | **NOT** |",
                 "| 1 of 1 specs and sizes | all | met |"):
      self.assertIn(line, text)

  def test_wrong_of_ours(self):
    self.assertEqual(report.wrong_of_ours(content(measured())), 0)
    self.assertEqual(report.wrong_of_ours(content(measured(wrong=3))), 3)

  def test_through_json(self):
    one = measured()
    self.assertEqual(
        cells.Measured.from_dict(json.loads(json.dumps(one.to_dict()))), one)

  def test_report_only(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / "results.json").write_text(json.dumps(content(measured())),
                                         encoding="utf-8")
    suite = str(python_process.ROOT / "benchmarks" / "suite.py")
    outcome = python_process.run(suite, "--report_only", f"--out={folder}")
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertEqual((folder / "RESULTS.md").read_text(encoding="utf-8"),
                     report.text(content(measured()), None))
    outcome = python_process.run(suite, f"--out={folder / 'none'}")
    self.assertEqual(outcome.returncode, 2)
    self.assertRegex(outcome.stderr, r"`--out` \(.*none\) must be a folder")


class WorkloadsTest(absltest.TestCase):

  def test_resnet_is_that_of_keras(self):
    expected = loads.from_args(argparse.Namespace(
        model="ResNet50", sizes=None, saved_model=None, dtype=None))
    self.assertEqual(workloads.named("resnet").sizes, expected.sizes)

  def test_bytes(self):
    self.assertEqual(
        {name: (len(load.sizes), load.num_bytes)
         for name in ("resnet", "bert", "small", "big", "mixed3")
         for load in [workloads.named(name)]},
        {"resnet": (214, 102_334_368), "bert": (199, 437_928_960),
         "small": (500, 512_000), "big": (4, 64 << 20),
         "mixed3": (3, 132_352)})


class NodeCountTest(parameterized.TestCase):

  @parameterized.product(spec=("auto", "xring", "xring#3"), devices=(2, 3),
                         load=("mixed7", "vectors", "alike"))
  def test_counted(self, spec, devices, load):
    texts = {"vectors": "3x400,2x100k,1x804", "alike": "6x400,1x100k"}
    sizes = (loads.parse_sizes(texts[load]) if load in texts
             else workloads.named(load)).sizes
    site = sites.Site(tuple(virtual_devices.names(devices)))
    step = steps.build(contenders.of_spec(spec),
                       exact_inputs.make(site, sizes))
    self.assertEqual(step.nodes, node_count.predict(spec, sizes, devices))


class ProfileTest(absltest.TestCase):

  def test_no_sum_is_rewritten(self):
    # Four devices' 64 MB are more than Grappler believes to fit on one.
    outcome = python_process.run(
        str(python_process.ROOT / "benchmarks" / "profile_step.py"),
        "--devices=4", "--load=big", "--json")
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    ran = {share["op"]: share["count"]
           for share in json.loads(outcome.stdout)["shares"]}
    self.assertEqual(ran.get("AddN", 0), 4 + 4 + 1)  # Its sums; using them.
    self.assertNotIn("TemporaryVariable", ran)


class ChildrenTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    # Children get this process's path.
    self.enter_context(mock.patch.object(
        sys, "path", [python_process.without_extras(), *sys.path]))

  def test_a_real_cell(self):
    cell = cells.Cell(cells.GRAPH, "mixed4", 2)
    with children.Child("benchmarks.local_cell") as child:
      answer = child.ask({"do": "measure", "cell": dataclasses.asdict(cell),
                          "rounds": 2, "seconds": 60.0}, limit=120)
    found = cells.Measured.from_dict(answer)
    self.assertEqual((found.cell, found.notes), (cell, ()))
    self.assertEqual([r.family for r in found.results],
                     [cells.OURS, *[cells.TENSORFLOW] * 4, cells.FLOOR,
                      cells.NOTHING])
    for one in found.results:
      self.assertEqual((one.samples, one.wrong), (16, 0))
      self.assertBetween(one.median, one.low, one.high)
      self.assertEqual(one.nodes > 0, one.family != cells.NOTHING)
      self.assertGreater(one.median, 0)

  def test_what_goes_wrong(self):
    with children.Child("benchmarks.nonsense") as child, (
        self.assertRaisesRegex(
            children.ChildError, "ended with code 1; it said: .*No module")):
      child.answer(limit=60)
    with children.Child("benchmarks.scaling_cell") as child:
      with self.assertRaisesRegex(children.ChildError, "within 0.01 s"):
        child.answer(limit=0.01)
      with self.assertRaisesRegex(children.ChildError, "`workers` .0. must"):
        child.ask({"do": "explain", "workers": 0, "devices": 1}, limit=120)


if __name__ == "__main__":
  absltest.main()
