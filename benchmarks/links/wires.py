"""Measures wires between hosts with cables, and writes a report.

    python -m benchmarks.links.wires [--cells=REGEX] [--fresh]

"auto" with each wire is held against "auto" without, in the same rounds. It
keeps what it measured after each cell, in wires_links.json, and goes on from
there. WIRES_LINKS.md is made from that alone. Needs what the suite needs.
"""

import argparse
import dataclasses
import itertools
import pathlib
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import resuming
from benchmarks.links import cells
from benchmarks.links import testbed
from benchmarks.links import wires_report

from tf_cdops.cli import output

_RESULTS, _REPORT = "wires_links.json", "WIRES_LINKS.md"


def wanted_cells() -> list[cells.Cell]:
  """Returns those with one device a host and a load of 8 MB or more."""
  large = [cell for cell in cells.all_cells()
           if cell.devices == 1 and cell.is_large]
  return large + [dataclasses.replace(cell, rate=all_cells.LOOPBACK)
                  for cell in large
                  if cell.rate == cells.FAST and cell.hosts < 8]


def main() -> int:
  """Returns 1 if a result was beyond its wire's bound."""
  args, out = _parse()
  content = resuming.read(out / _RESULTS)
  if not args.report_only:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not resuming.enter_network():
      return 2
    every = wanted_cells()
    content = {"command": "python -m benchmarks.links.wires",
               **resuming.kept(content, cells.Cell, every)}
    try:
      _run(resuming.wanted(args, content, cells.Cell, every), content, out)
    except KeyboardInterrupt:
      print("Interrupted: this is what there was so far.", file=sys.stderr)
  output.write_text(str(out / _REPORT), wires_report.text(content))
  print(f"Wrote {out / _RESULTS} and {out / _REPORT}.")
  measured = [cells.Measured.from_dict(one) for one in content["cells"]]
  return 1 if cells.wrong_of_ours(measured) else 0


def _parse() -> tuple[argparse.Namespace, pathlib.Path]:
  parser = resuming.parser(__doc__, _RESULTS, "8x1/200mbit")
  args = parser.parse_args()
  return args, resuming.check(parser, args, _RESULTS)


def _run(missing: Sequence[cells.Cell], content: dict[str, Any],
         out: pathlib.Path) -> None:
  # Processes keep what a load took, so each has new ones.
  together = lambda cell: (cell.rate != all_cells.LOOPBACK, cell.hosts,
                           cell.load)
  for (shaped, hosts, _), some in itertools.groupby(
      sorted(missing, key=together), together):
    with testbed.Testbed(hosts, 1, None, wires_report.WIRES, shaped) as bed:
      for cell in some:
        started = time.monotonic()
        measured = bed.measure(cell)
        resuming.keep(content, measured)
        output.write_json(str(out / _RESULTS), content)
        print(f"{cell}: {wires_report.brief(measured)} "
              f"({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
  sys.exit(main())
