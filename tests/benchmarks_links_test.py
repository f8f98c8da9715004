"""Tests of the benchmark between hosts: its verdicts, report, one real cell."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from benchmarks import cells as all_cells
from benchmarks import likely
from benchmarks import verdicts
from benchmarks import workloads
from benchmarks.links import cells
from benchmarks.links import pages
from benchmarks.links import report
from benchmarks.links import targets
from tests import cable_support
from tests import python_process

import tf_cdops
from tf_cdops import cost

_CELL = cells.Cell(4, 1, cells.SLOW, "big")
_LINKS = {"inside": None,
          "across": {"latency_seconds": 2e-4, "bytes_per_second": 25e6,
                     "message_seconds": 5e-5}}


def contender(name, family, times, wrong=0, **more):
  """One whose rounds took so many times `least`."""
  return cells.Contender(name, family, wrong,
                         tuple(_CELL.least * one for one in times), **more)


def measured(auto=(1.1,) * 6, wrong=0, cell=_CELL):
  return cells.Measured(cell, "2026-01-01 00:00 UTC", _LINKS, (
      contender("auto", all_cells.OURS, auto, wrong, plan="4 by xring",
                predicted=_CELL.least, messages=48),
      contender("xring#4", all_cells.OURS, (1.2, 1.1, 1.2, 1.1, 1.2, 1.1)),
      contender("wrong", all_cells.OURS, (0.1,) * 6, wrong=7),
      contender("ring", all_cells.MULTI_WORKER, (1.3,) * 6),
      contender("buckets", all_cells.GLOO, (1.0,) * 6)), ("a note",))


def content(*all_measured):
  return {"command": "suite", "quick": False, "machine": {"cores": "2"},
          "notes": [], "failed": ["x: y"],
          "cells": [one.to_dict() for one in all_measured]}


class TargetsTest(parameterized.TestCase):

  def test_verdicts(self):
    found = {v.target.text: (v.rival, round(v.ratio, 2), v.met)
             for v in targets.judge([measured()])}
    self.assertEqual(found, {
        "of the best other spec": ("xring#4", 0.96, True),
        "of least, 200 Mbit/s, 4 hosts, 32 MB or more": ("least", 1.1, True),
        "of MultiWorkerMirroredStrategy": ("ring", 0.85, True),
        "of Gloo": ("buckets", 1.1, False)})

  def test_a_miss_lies_wholly_above(self):
    times = (1.14, 1.3, 1.3, 1.3, 1.3, 1.3)
    least, = (v for v in targets.judge([measured(times)])
              if v.target.against == targets.LEAST)
    self.assertAlmostEqual(least.ratio, 1.3)
    self.assertTrue(least.met)
    least, = (v for v in targets.judge([measured((1.16, *times[1:]))])
              if v.target.against == targets.LEAST)
    self.assertFalse(least.met)
    least, = (v for v in targets.judge([measured(wrong=1)])
              if v.target.against == targets.LEAST)
    self.assertFalse(least.met)

  def test_means(self):
    others = cells.Cell(4, 2, cells.SLOW, "big")
    found = targets.judge([measured(), measured((1.3,) * 6, cell=others)])
    self.assertEqual(
        {target.against: round(mean, 3)
         for target, mean in verdicts.means(found)},
        {all_cells.MULTI_WORKER: 0.92, all_cells.GLOO: 1.196})

  @parameterized.parameters(
      ("4x1/200mbit/one", 4, 1, 4.027), ("8x2/1gbit/big", 8, 2, 0.940))
  def test_cells(self, name, hosts, devices, least):
    cell, = all_cells.matching(cells.all_cells(), name)
    self.assertEqual((cell.hosts, cell.devices), (hosts, devices))
    self.assertAlmostEqual(cell.least, least, places=3)

  def test_all_cells(self):
    self.assertLen(set(cells.all_cells()), 72)
    self.assertContainsSubset(cells.quick_cells(), cells.all_cells())
    self.assertEqual({cell.load for cell in cells.all_cells()
                      if not cell.is_large}, {"small"})


class ReportTest(absltest.TestCase):

  def test_text(self):
    text = report.text(content(measured()))
    for line in ("**Failed:** x: y", "1 of 72 cells", "a note",
                 "| of Gloo | ≤ 1.05 | 0 of 1 | 1.10 | 4x1/200mbit/big |",
                 "| of Gloo, geometric mean | ≤ 0.98 | **NOT** | 1.10 |",
                 "| of MultiWorkerMirroredStrategy, geometric mean | ≤ 0.93 "
                 "| met | 0.85 |",
                 "| predicted by measured | 0.7 to 1.4 | 1 of 1 | 0.91 |",
                 "| of Gloo | 4x1/200mbit/big | buckets | 1.10 | 1.10 and "
                 "1.10 | ≤ 1.05 |",
                 "| 4 x 1 | 200mbit | big | 4027 | 4 by xring | **1.10** "
                 "| 1.15 `xring#4` | 1.30 | 1.00 | 0.91 |"):
      self.assertIn(line, text)

  def test_through_json(self):
    one = measured()
    self.assertEqual(
        cells.Measured.from_dict(json.loads(json.dumps(one.to_dict()))), one)


class PagesTest(absltest.TestCase):

  def test_pages_have_the_tables(self):
    tables = pages.tables()
    for page in pages.PAGES:
      text = page.read_text(encoding="utf-8")
      self.assertIn(tables["which spec"], text)
      self.assertEqual(pages.page_with(text, tables), text,
                       "run python -m benchmarks.links.pages")
    self.assertIn(tables["speed"], pages.PAGES[0].read_text(encoding="utf-8"))

  def test_a_page(self):
    page = "a\n<!-- {0} -->\n{1}\n<!-- /{0} -->\nb"
    self.assertEqual(
        pages.page_with(page.format("x", "old"), {"x": "new", "y": "z"}),
        page.format("x", "new"))

  def test_what_is_measured_is_bold(self):
    content = json.loads(pages.RESULTS.read_text(encoding="utf-8"))
    self.assertIn("4x1/200mbit/big", [
        str(cells.Cell(**one["cell"])) for one in content["cells"]])
    row = next(line for line in pages.tables()["which spec"].splitlines()
               if line.startswith("| 4 x 1 | 4 of 16 MB"))
    self.assertRegex(row, r"\*\*1\.\d\d\*\* .* `xring`: 1\.\d\d \|")


class LikelyTest(parameterized.TestCase):

  @parameterized.parameters((4, 1, "resnet"), (8, 1, "small"), (4, 2, "one"),
                            (2, 2, "uneven"))
  def test_ways(self, hosts, devices, load):
    topology = tf_cdops.Topology.grid(hosts, devices, device_type="CPU")
    found = likely.ways(topology, workloads.named(load).sizes,
                        cost.Link("cable", 1e-4, 25e6, 1e-4))
    self.assertEqual(str(found[0]), "auto")
    self.assertGreaterEqual(len(found), 2)
    self.assertLen({way.buckets for way in found}, len(found))
    for way in found[1:]:  # Nor does any promise more than "auto" itself.
      self.assertLessEqual(found[0].seconds, 1.05 * way.seconds, str(way))


class SuiteTest(absltest.TestCase):

  def test_report_only_and_wrong_folders(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    run = lambda *args: python_process.run("-m", "benchmarks.links.suite",
                                           *args)
    outcome = run("--report_only", f"--out={folder}")
    self.assertEqual(outcome.returncode, 2)
    self.assertRegex(outcome.stderr, r"must have links.json; run without")
    (folder / "links.json").write_text(json.dumps(content(measured())),
                                       encoding="utf-8")
    outcome = run("--report_only", f"--out={folder}")
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertEqual((folder / "LINKS.md").read_text(encoding="utf-8"),
                     report.text(content(measured())))
    outcome = run(f"--out={folder / 'none'}")
    self.assertEqual(outcome.returncode, 2)
    self.assertRegex(outcome.stderr, r"`--out` \(.*none\) must be a folder")

  def test_a_real_cell_and_what_is_there_is_kept(self):
    if cable_support.why_not():
      self.skipTest(f"no cables: {cable_support.why_not()}")
    folder = self.create_tempdir().full_path
    cell = "^2x1/1gbit/small"
    for _ in range(2):
      outcome = python_process.run(
          "-m", "benchmarks.links.suite", f"--out={folder}", f"--cells={cell}",
          "--torch_python=")
      self.assertEqual(outcome.returncode, 0, outcome.stderr)
    self.assertNotIn("small:", outcome.stdout)  # It was measured before.
    kept = json.loads(pathlib.Path(folder, "links.json").read_text())
    one, = map(cells.Measured.from_dict, kept["cells"])
    self.assertEqual([c.family for c in one.contenders][::len(
        one.contenders) - 1], [all_cells.OURS, all_cells.MULTI_WORKER])
    for each in one.contenders:
      self.assertLen(each.seconds, 20)
      self.assertEqual(each.wrong, 0)
    self.assertGreater(one.links["across"]["bytes_per_second"], 50e6)


if __name__ == "__main__":
  absltest.main()
