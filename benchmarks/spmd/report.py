"""Writes SPMD.md from what was measured, and from nothing else."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import resuming
from benchmarks import verdicts
from benchmarks.spmd import cells
from benchmarks.spmd import targets

from tf_cdops.explaining import text_table

_HOW = """\
Every worker runs a program of its own, once with MultiWorkerMirroredStrategy
(the ring, as TensorFlow has it) and once with SpmdStrategy. Programs of both
are there at once and take turns, step by step, in ever another order; figures
are medians, and ratios those of steps in the same round. A step takes as long
as its slowest program's. Hosts are network namespaces with cables of the rate,
as in LINKS.md, and share this machine's cores; `least` is 2(W-1)/W n bytes over
the rate. Every element of every float32 result is compared with the exact sum,
and with bfloat16 with what one rounding can make of it.

`train80` is a step of training a net of eight convolutions, 19 MB, with its
backward pass and update, 80 images of 32 x 32 a worker; "nothing" is the same
without any all-reduce. What isn't hidden is the difference. There each host has
its own, equal share of the processors: where all share them, they don't run
evenly, and sums wait for the last."""


def text(content: dict[str, Any]) -> str:
  """Returns the report."""
  order = cells.every_cell()
  measured = sorted(map(cells.Measured.from_dict, content["cells"]),
                    key=lambda one: order.index(one.cell))
  found = targets.judge(measured)
  return "\n\n".join([
      "# One program a worker: results", _heading(content, measured),
      _targets(found), _verdicts(found), f"## How\n\n{_HOW}",
      _details(measured)]) + "\n"


def brief(measured: cells.Measured) -> str:
  """Returns a few words about a cell."""
  return ", ".join(f"{v.target.contender} {v.ratio:.2f} of <= "
                   f"{v.target.limit:g}" for v in targets.judge([measured]))


def _heading(content: dict[str, Any],
             measured: Sequence[cells.Measured]) -> str:
  lines = [f"**Failed:** {failure}\n" for failure in content["failed"]]
  days = sorted({one.date[:10] for one in measured})
  lines.append(f"{', '.join(days)}, `{content['command']}`; {len(measured)} of "
               f"{len(cells.every_cell())} cells.\n")
  lines.append(resuming.machine_table(content))
  lines += [f"\nNote: {note}" for note in content["notes"]]
  return "\n".join(lines)


def _targets(found: Sequence[verdicts.Verdict]) -> str:
  return ("## Targets\n\nSpmdStrategy's time, by that of "
          "MultiWorkerMirroredStrategy in float32.\n\n" + text_table.markdown(
              ("", ">target", ">met", ">worst", "where"),
              verdicts.rows(found)))


def _verdicts(found: Sequence[verdicts.Verdict]) -> str:
  return "## Ratios\n\n" + text_table.markdown(
      ("cell", "target", ">ratio", ">between", ">limit", "met"),
      ((v.cell, v.target.text, f"{v.ratio:.2f}",
        "{:.2f} and {:.2f}".format(*v.between), f"{v.target.limit:g}",
        "yes" if v.met else "**no**") for v in found))


def _details(measured: Sequence[cells.Measured]) -> str:
  rows = []
  for one in measured:
    least = one.cell.least
    for contender in one.contenders:
      median = statistics.median(contender.seconds)
      rows.append((
          one.cell, contender.contender, f"{median * 1e3:.1f}",
          "" if least is None else f"{median / least:.2f}",
          f"{min(contender.seconds) * 1e3:.1f}",
          f"{max(contender.seconds) * 1e3:.1f}", len(contender.seconds),
          f"{contender.wrong:,}"))
  return "## Cell by cell\n\n" + text_table.markdown(
      ("cell", "", ">median ms", ">of least", ">min ms", ">max ms", ">steps",
       ">#wrong"), rows)
