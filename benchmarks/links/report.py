"""Writes LINKS.md from what was measured, and from nothing else."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import resuming
from benchmarks import verdicts
from benchmarks.links import cells
from benchmarks.links import targets

from tf_cdops.explaining import text_table

_HOW = """\
Each host is a network namespace with a cable of its own, a veth pair whose both
ends are shaped to the rate (htb), to one switch; the client of ours is on the
switch. `least` is 2(W-1)/W n bytes over the rate, for W hosts and a load of n
bytes: no all-reduce can be quicker. Contenders are programs of their own that
take turns, step by step, in ever another order; figures are medians, and ratios
those of steps in the same round. Every element of every result is compared with
the exact sum. Ours are driven by one client, in one graph. With two devices a
host, MultiWorkerMirroredStrategy (MWMS, the ring) and Gloo (buckets of 25 MB,
with the copies in and out) have two processes on each.

All hosts share this machine's cores. So a message costs more than between real
hosts, the more the more hosts there are; at 1 Gbit/s with 8 hosts the cores are
the limit, not the cables."""


def text(content: dict[str, Any]) -> str:
  """Returns the report."""
  order = cells.all_cells()
  measured = sorted(map(cells.Measured.from_dict, content["cells"]),
                    key=lambda one: order.index(one.cell))
  found = targets.judge(measured)
  return "\n\n".join([
      "# Results between hosts", _heading(content, measured),
      _targets(measured, found), _summary(measured), f"## How\n\n{_HOW}",
      _details(measured)]) + "\n"


def brief(measured: cells.Measured) -> str:
  """Returns a few words about a cell."""
  return ", ".join(f"{one.contender} {_times(one, measured):.2f}"
                   for one in _ranked(measured))


def _heading(content: dict[str, Any],
             measured: Sequence[cells.Measured]) -> str:
  lines = []
  if content["quick"]:
    lines.append("**A quick run: a few of the cells.**\n")
  lines += [f"**Failed:** {failure}\n" for failure in content["failed"]]
  days = sorted({one.date[:10] for one in measured})
  lines.append(f"{', '.join(days)}, `{content['command']}`; {len(measured)} of "
               f"{len(cells.all_cells())} cells.\n")
  lines.append(resuming.machine_table(content))
  lines += [f"\nNote: {note}" for note in content["notes"]]
  return "\n".join(lines)


def _targets(measured: Sequence[cells.Measured],
             found: Sequence[verdicts.Verdict]) -> str:
  rows = verdicts.rows(found)
  low, high = targets.PREDICTED
  predicted = {one.cell: targets.predicted(one) for one in measured
               if one.cell.is_large}
  if predicted:
    worst = max(predicted, key=lambda cell: max(
        predicted[cell] / high, low / predicted[cell]))
    good = sum(low <= ratio <= high for ratio in predicted.values())
    rows.append(("predicted by measured", f"{low:g} to {high:g}",
                 f"{good} of {len(predicted)}", f"{predicted[worst]:.2f}",
                 worst))
  lines = ["## Targets\n", "For the spec `auto`, in cells of 8 MB or more.\n",
           text_table.markdown(
               ("auto's time", ">target", ">met", ">worst", "where"), rows)]
  unmet = [v for v in found if not v.met]
  if unmet:
    lines += ["\n### Not met\n", text_table.markdown(
        ("target", "cell", "rival", ">ratio", ">between", ">target"),
        ((v.target.text, v.cell, v.rival, f"{v.ratio:.2f}",
          "{:.2f} and {:.2f}".format(*v.between), f"≤ {v.target.limit:g}")
         for v in unmet))]
  return "\n".join(lines)


def _summary(measured: Sequence[cells.Measured]) -> str:
  """One line a cell."""
  rows = []
  for one in measured:
    others = [_best(one, all_cells.OURS), _best(one, all_cells.MULTI_WORKER),
              _best(one, all_cells.GLOO)]
    cell = one.cell
    rows.append((
        f"{cell.hosts} x {cell.devices}", cell.rate, cell.load,
        f"{cell.least * 1e3:.0f}", one.auto.plan,
        f"**{_times(one.auto, one):.2f}**",
        *("" if other is None else f"{_times(other, one):.2f}"
          + (f" `{other.contender}`" if i == 0 else "")
          for i, other in enumerate(others)),
        f"{targets.predicted(one):.2f}"))
  return "## Times, as multiples of `least`\n\n" + text_table.markdown(
      ("hosts x devices", "rate", "load", ">least, ms", "auto's plan",
       ">`auto`", ">best other spec", ">MWMS", ">Gloo",
       ">predicted by measured"), rows)


def _details(measured: Sequence[cells.Measured]) -> str:
  loads = "; ".join(f"`{name}`, {what}" for name, what in cells.LOADS.items())
  lines = [f"## Cell by cell\n\nThe loads: {loads}."]
  for one in measured:
    across = one.links["across"]
    lines.append(
        f"\n### {one.cell}\n\nleast: {one.cell.least * 1e3:.1f} ms. The links, "
        f"measured: {across['latency_seconds'] * 1e6:.0f} µs, "
        f"{across['bytes_per_second'] * 8e-6:.0f} Mbit/s, "
        f"{across['message_seconds'] * 1e6:.0f} µs a message. {one.date}.\n")
    rows = []
    for contender in _ranked(one):
      seconds = contender.seconds
      rows.append((
          contender.contender, f"{statistics.median(seconds) * 1e3:.1f}",
          f"{_times(contender, one):.2f}", f"{min(seconds) * 1e3:.1f}",
          f"{max(seconds) * 1e3:.1f}", len(seconds), f"{contender.wrong:,}",
          "" if contender.predicted is None
          else f"{contender.predicted * 1e3:.1f}",
          "" if contender.messages is None else f"{contender.messages:,}"))
    lines.append(text_table.markdown(
        ("", ">median ms", ">of least", ">min ms", ">max ms", ">steps",
         ">#wrong", ">predicted ms", ">messages"), rows))
    lines += [f"\n{note}" for note in one.notes]
  return "\n".join(lines)


def _best(measured: cells.Measured, family: str) -> cells.Contender | None:
  return min((one for one in measured.of(family) if not one.wrong),
             default=None,
             key=lambda one: statistics.median(one.seconds))


def _ranked(measured: cells.Measured) -> list[cells.Contender]:
  return sorted(measured.contenders,
                key=lambda one: statistics.median(one.seconds))


def _times(contender: cells.Contender, measured: cells.Measured) -> float:
  return statistics.median(contender.seconds) / measured.cell.least
