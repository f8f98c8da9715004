"""Writes WIRES_LINKS.md from what was measured, and from nothing else."""

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import likely
from benchmarks import resuming
from benchmarks import verdicts
from benchmarks.links import cells

from tf_cdops.explaining import text_table

WIRES = ("bfloat16", "float16", "int8")
# Of the time of "auto" without a wire, at 200 Mbit/s.
TARGETS = {"bfloat16": 0.62, "float16": 0.62, "int8": 0.42}

_HOW = """\
Hosts, cables, rounds and loads are those of [LINKS.md](LINKS.md), with one
device a host. Each wire is the spec `auto` with `wire=`, held against `auto`
without one in the same rounds: ratios are medians of rounds, and a target is
missed if their 95% interval lies wholly above it. Every element of every result
is within the wire's bound, and replicas have the same bits, or "beyond" counts
it. int8 keeps its error feedback, as the classes do. There is no target at
1 Gbit/s and on the loopback, where cores that all hosts share are the limit,
and not the cables. Where the model says that a wire doesn't pay, `auto` leaves
it out; what it would have taken, by a direct exchange, is told then."""


def text(content: dict[str, Any]) -> str:
  """Returns the report."""
  rates = cells.SLOW, cells.FAST, all_cells.LOOPBACK
  measured = sorted(map(cells.Measured.from_dict, content["cells"]),
                    key=lambda one: (rates.index(one.cell.rate), one.cell))
  days = sorted({one.date[:10] for one in measured})
  return "\n\n".join([
      "# Wires between hosts",
      f"{', '.join(days)}, `{content['command']}`; {len(measured)} cells.",
      resuming.machine_table(content),
      *(f"Note: {note}" for note in content["notes"]), _targets(measured),
      _times(measured), f"## How\n\n{_HOW}"]) + "\n"


def brief(measured: cells.Measured) -> str:
  """Returns a few words about a cell."""
  return ", ".join(f"{wire} {_words(measured, wire)}" for wire in WIRES)


def _words(measured: cells.Measured, wire: str) -> str:
  some = ratios(measured, wire)
  if some is None:
    return ""
  forced = ratios(measured, wire, likely.exchange(measured.cell.hosts))
  if forced is not None:
    return f"left out; else {statistics.median(forced):.2f}"
  return (f"{statistics.median(some):.2f} "
          f"({min(some):.2f} to {max(some):.2f})")


def ratios(measured: cells.Measured, wire: str,
           spec: str = cells.AUTO) -> list[float] | None:
  """Returns a wire's times by auto's without one, round by round."""
  found = [one for one in measured.contenders
           if one.contender == f"{spec}, {wire}"]
  if not found:
    return None
  return [a / b for a, b in zip(found[0].seconds, measured.auto.seconds,
                                strict=True)]


def _targets(measured: Iterable[cells.Measured]) -> str:
  slow = [one for one in measured if one.cell.rate == cells.SLOW]
  rows = []
  for wire, limit in TARGETS.items():
    found = {one.cell: some for one in slow if (some := ratios(one, wire))}
    if not found:
      continue
    met = sum(verdicts.interval(some)[0] <= limit
              for some in found.values())
    worst = max(found, key=lambda cell: statistics.median(found[cell]))
    rows.append((wire, f"≤ {limit:g}", f"{met} of {len(found)}",
                 f"{statistics.median(found[worst]):.2f}", worst))
  return "## Targets, at 200 Mbit/s\n\n" + text_table.markdown(
      ("wire", ">of auto's time", ">met", ">worst", "where"), rows)


def _times(measured: Iterable[cells.Measured]) -> str:
  rows = []
  for one in measured:
    rows.append((
        str(one.cell.hosts), one.cell.rate, one.cell.load,
        f"{statistics.median(one.auto.seconds) * 1e3:.0f}",
        *(_words(one, wire) for wire in WIRES),
        str(sum(each.wrong for each in one.contenders))))
  return "## Times, of auto without a wire\n\n" + text_table.markdown(
      (">hosts", "rate", "load", ">auto, ms",
       *(f">{wire}" for wire in WIRES), ">beyond"), rows)
