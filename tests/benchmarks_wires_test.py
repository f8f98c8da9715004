"""Tests of the report on wires between hosts."""

import dataclasses
import json

from absl.testing import absltest
from benchmarks import cells as all_cells
from benchmarks import likely
from benchmarks import workloads
from benchmarks.links import cells
from benchmarks.links import wires
from benchmarks.links import wires_report

import tf_cdops
from tf_cdops import cost


def measured(cell, ratios, wrong=0):
  """A cell whose float32 took a second, and each wire so many."""
  contenders = [cells.Contender("auto", all_cells.OURS, 0, (1.0,) * 6)]
  contenders += [cells.Contender(f"auto, {wire}", all_cells.OURS, wrong,
                                 (ratio,) * 6)
                 for wire, ratio in ratios.items()]
  return cells.Measured(cell, "2026-01-01 00:00 UTC", {}, tuple(contenders))


class ReportTest(absltest.TestCase):

  def test_text(self):
    content = {"command": "wires", "machine": {"cores": "2"},
               "notes": ["so it was"], "cells": [
        measured(cells.Cell(8, 1, cells.FAST, "one"), {"int8": 0.9}).to_dict(),
        measured(cells.Cell(4, 1, cells.SLOW, "big"),
                 {"bfloat16": 0.5, "int8": 0.43}).to_dict(),
        measured(cells.Cell(2, 1, cells.SLOW, "one"),
                 {"bfloat16": 0.62, "int8": 0.3}, 7).to_dict()]}
    text = wires_report.text(json.loads(json.dumps(content)))
    for line in (
        "Note: so it was",
        "| bfloat16 | ≤ 0.62 | 2 of 2 | 0.62 | 2x1/200mbit/one |",
        "| int8 | ≤ 0.42 | 1 of 2 | 0.43 | 4x1/200mbit/big |",
        "| 8 | 1gbit | one | 1000 |  |  | 0.90 (0.90 to 0.90) | 0 |",
        "| 2 | 200mbit | one | 1000 | 0.62 (0.62 to 0.62) |  | "
        "0.30 (0.30 to 0.30) | 14 |"):
      self.assertIn(line, text)
    self.assertNotIn("\n| float16 |", text)

  def test_a_wire_that_was_left_out(self):
    cell = cells.Cell(2, 1, all_cells.LOOPBACK, "one")
    one = measured(cell, {"int8": 1.0})
    one = dataclasses.replace(one, contenders=(
        *one.contenders,
        cells.Contender("ps#2, int8", all_cells.OURS, 0, (1.4,) * 6)))
    text = wires_report.text({"command": "wires", "machine": {"cores": "2"},
                              "notes": [], "cells": [one.to_dict()]})
    self.assertIn(
        "| 2 | loopback | one | 1000 |  |  | left out; else 1.40 | 0 |", text)


class CellsTest(absltest.TestCase):

  def test_cells(self):
    chosen = wires.wanted_cells()
    self.assertEqual({(cell.hosts, cell.rate) for cell in chosen}, {
        *((hosts, rate) for hosts in (2, 4, 8)
          for rate in (cells.SLOW, cells.FAST)),
        (2, all_cells.LOOPBACK), (4, all_cells.LOOPBACK)})
    self.assertLen(chosen, 40)
    self.assertTrue(all(cell.num_bytes >= 8e6 for cell in chosen))

  def test_contenders(self):
    ways = likely.wired(
        tf_cdops.Topology.grid(8, 1, device_type="CPU"),
        workloads.named("big").sizes, cost.Link("slow", 2e-4, 25e6, 1e-4),
        wires_report.WIRES)
    self.assertEqual([str(way) for way in ways],
                     ["auto", "auto, bfloat16", "auto, float16", "auto, int8"])
    self.assertEqual([any(b.wired for b in way.buckets) for way in ways],
                     [False, True, True, True])
    for way in ways[1:]:
      self.assertLess(way.seconds, ways[0].seconds)

  def test_a_wire_that_does_not_pay_is_there_both_ways(self):
    ways = likely.wired(
        tf_cdops.Topology.grid(2, 1, device_type="CPU"),
        workloads.named("big").sizes, cost.Link("fast", 1e-5, 100e9, 1e-6),
        ["int8"])
    self.assertEqual([str(way) for way in ways],
                     ["auto", "auto, int8", "ps#2, int8"])
    self.assertEqual([any(b.wired for b in way.buckets) for way in ways],
                     [False, False, True])
    self.assertGreater(ways[2].seconds, ways[1].seconds)


if __name__ == "__main__":
  absltest.main()
