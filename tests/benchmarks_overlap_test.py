"""Tests of the report on what a step of training doesn't hide."""

import json
import math
import pathlib

from absl.testing import absltest
from benchmarks import nets
from benchmarks import overlap

_FOLDER = pathlib.Path(overlap.__file__).parent


def measured(**seconds):
  names = dict(zip(("alone", "sums", "singly", "before", "auto", "told"), (
      overlap.ALONE, overlap.SUMS, overlap.SINGLY, overlap.BEFORE,
      overlap.AUTO, overlap.TOLD), strict=True))
  return overlap.Measured(overlap.CELLS[0], "2026-11-18 12:00 UTC", {}, {
      names[name]: times for name, times in seconds.items()})


class OverlapTest(absltest.TestCase):

  def test_ratios_are_those_of_the_same_round(self):
    one = measured(alone=[4.0, 5.0], sums=[6.0, 4.0], before=[9.0, 9.0],
                   auto=[6.5, 7.0])
    self.assertEqual(one.unhidden(overlap.AUTO), [2.5, 2.0])
    self.assertEqual(one.ratios(overlap.AUTO, overlap.BEFORE), [0.5, 0.5])
    self.assertEqual(one.of_longest(overlap.AUTO), [6.5 / 6, 7 / 5])

  def test_report_says_what_is_missed(self):
    one = measured(alone=[4.0] * 3, sums=[4.0] * 3, singly=[9.0] * 3,
                   before=[8.0] * 3, auto=[6.0] * 3, told=[4.4] * 3)
    content = {"command": "overlap", "machine": {"CPU": "x"},
               "notes": ["beware"], "cells": [one.to_dict()]}
    text = overlap.report(json.loads(json.dumps(content)))
    self.assertIn("Note: beware", text)
    rows = {line.split(" | ")[1]: line for line in text.splitlines()
            if line.startswith(f"| {one.cell}") and line.count("|") == 10}
    self.assertRegex(rows["auto"], r"\| 0.40 \| 0.50 \|.*\| yes \| 1.50 \|"
                     r".*\| \*\*no\*\* \|")
    self.assertRegex(rows["auto, told"], r"\| 0.10 \|.*\| yes \| 1.10 \|.*yes")

  def test_the_page_is_of_what_was_measured(self):
    content = json.loads((_FOLDER / "overlap.json").read_text())
    self.assertEqual((_FOLDER / "OVERLAP.md").read_text(),
                     overlap.report(content))

  def test_plans_of_before_are_for_these_nets(self):
    pinned = json.loads((_FOLDER / "overlap_before.json").read_text())["plans"]
    for (name, net), plan in zip(nets.NETS.items(), pinned, strict=True):
      # An embedding's gradient is sparse, and goes by itself.
      dense = net.shapes[name == "embedding":]
      self.assertEqual([size for _, size in plan["tensors"]],
                       [4 * math.prod(shape) for shape in dense])


if __name__ == "__main__":
  absltest.main()
