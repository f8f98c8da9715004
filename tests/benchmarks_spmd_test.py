"""Tests of the benchmark of one program a worker: its verdicts and report."""

from absl.testing import absltest
from benchmarks import cells as all_cells
from benchmarks import verdicts
from benchmarks.links import cells as link_cells
from benchmarks.spmd import cells
from benchmarks.spmd import report
from benchmarks.spmd import targets

_LARGE = cells.Cell(4, link_cells.SLOW, "big")
_TRAINING = cells.Cell(4, link_cells.SLOW, "train80")
_RING = f"{all_cells.MULTI_WORKER}, ring"


def measured(cell, wrong=0, **times):
  """A cell in which each contender's rounds took so many seconds."""
  names = {"theirs": (_RING, all_cells.MULTI_WORKER),
           "theirs_alone": (f"{_RING}, {all_cells.NOTHING}",
                            all_cells.MULTI_WORKER),
           "ours": (all_cells.SPMD, all_cells.OURS),
           "half": (all_cells.SPMD_HALF, all_cells.OURS),
           "alone": (f"{all_cells.SPMD}, {all_cells.NOTHING}",
                     all_cells.OURS)}
  return cells.Measured(cell, "2026-01-01 00:00 UTC", tuple(
      cells.Contender(*names[key], wrong, (seconds,) * 6 if isinstance(
          seconds, float) else seconds) for key, seconds in times.items()))


def content(*all_measured):
  return {"command": "suite", "machine": {"cores": "2"}, "failed": ["x: y"],
          "notes": ["so it was"],
          "cells": [one.to_dict() for one in all_measured]}


class TargetsTest(absltest.TestCase):

  def test_large_loads(self):
    plain, half = targets.judge(
        [measured(_LARGE, theirs=1.0, ours=1.1, half=0.6)])
    self.assertEqual((plain.ratio, plain.target.contender, plain.met),
                     (1.1, all_cells.SPMD, False))
    self.assertEqual((half.ratio, half.target.contender, half.met),
                     (0.6, all_cells.SPMD_HALF, True))

  def test_training_counts_what_is_not_hidden(self):
    verdict, = targets.judge([measured(
        _TRAINING, theirs=3.0, theirs_alone=1.0, ours=2.5, half=1.0,
        alone=1.5)])
    self.assertEqual((verdict.ratio, verdict.met), (0.5, True))

  def test_a_miss_lies_wholly_above(self):
    for least, met in ((1.04, True), (1.06, False)):
      plain, _ = targets.judge([measured(
          _LARGE, theirs=1.0, ours=(least,) + (1.2,) * 5, half=0.6)])
      self.assertEqual((plain.ratio, plain.met), (1.2, met))

  def test_wrong_sums_meet_nothing(self):
    found = targets.judge(
        [measured(_LARGE, wrong=1, theirs=1.0, ours=0.9, half=0.5)])
    self.assertFalse(any(verdict.met for verdict in found))

  def test_mean(self):
    other = cells.Cell(2, link_cells.SLOW, "big")
    (_, mean), = verdicts.means(targets.judge(
        [measured(_LARGE, theirs=1.0, ours=0.5, half=0.5),
         measured(other, theirs=1.0, ours=2.0, half=0.5)]))
    self.assertAlmostEqual(mean, 1.0)

  def test_every_cell_has_a_target(self):
    for cell in cells.every_cell():
      self.assertTrue(any(target.covers(cell) for target in targets.TARGETS),
                      cell)


class ReportTest(absltest.TestCase):

  def test_text(self):
    text = report.text(content(
        measured(_LARGE, theirs=1.0, ours=1.1, half=0.6),
        measured(cells.Cell(2, cells.LOOPBACK, "small"), theirs=1.0, ours=0.9,
                 half=1.0)))
    self.assertIn("**Failed:** x: y", text)
    self.assertIn("Note: so it was", text)
    self.assertIn("| 8 MB or more, between hosts | ≤ 1.05 | 0 of 1 | 1.10 |",
                  text)
    self.assertIn("| 500 of 1 KB, loopback | ≤ 1 | 1 of 1 | 0.90 |", text)
    self.assertIn("geometric mean | ≤ 1 | **NOT** | 1.10 |", text)

  def test_json_keeps_all(self):
    one = measured(_TRAINING, theirs=3.0, ours=2.5)
    self.assertEqual(cells.Measured.from_dict(one.to_dict()), one)


if __name__ == "__main__":
  absltest.main()
