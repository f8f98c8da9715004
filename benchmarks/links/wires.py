"""Measures wires between hosts with cables, and writes a report.

    python -m benchmarks.links.wires [--cells=REGEX] [--fresh]

"auto" with each wire is held against "auto" without, in the same rounds. It
keeps what it measured after each cell, in wires_links.json, and goes on from
there. WIRES_LINKS.md is made from that alone. Needs what the suite needs.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import shlex
import signal
import sys
import time
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import machine
from benchmarks.links import cells
from benchmarks.links import testbed
from benchmarks.links import wires_report

from tf_cdops.base import errors
from tf_cdops.cli import output
from tf_cdops.cluster import cables

_RESULTS, _REPORT = "wires_links.json", "WIRES_LINKS.md"
_FOLDER = pathlib.Path(__file__).resolve().parents[1]


def wanted_cells() -> list[cells.Cell]:
  """Returns those with one device a host and a load of 8 MB or more."""
  large = [cell for cell in cells.all_cells()
           if cell.devices == 1 and cell.is_large]
  return large + [dataclasses.replace(cell, rate=all_cells.LOOPBACK)
                  for cell in large
                  if cell.rate == cells.FAST and cell.hosts < 8]


def main() -> int:
  """Returns 1 if a result was beyond its wire's bound."""
  args = _parse()
  out = pathlib.Path(args.out)
  content = _start(args, out)
  if not args.report_only:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
      cables.enter_network(shaped=True)  # Before there is any thread.
    except errors.ClusterError as error:
      print(f"No cables: {error}", file=sys.stderr)
      return 2
    try:
      _run(args, content, out)
    except KeyboardInterrupt:
      print("Interrupted: this is what there was so far.", file=sys.stderr)
  output.write_text(str(out / _REPORT), wires_report.text(content))
  print(f"Wrote {out / _RESULTS} and {out / _REPORT}.")
  measured = [cells.Measured.from_dict(one) for one in content["cells"]]
  return 1 if cells.wrong_of_ours(measured) else 0


def _parse() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--out", default=str(_FOLDER), metavar="FOLDER",
                      help="where to write (default: benchmarks/)")
  parser.add_argument("--cells", default="", metavar="REGEX",
                      help="only cells with this in their name, such as "
                           "8x1/200mbit")
  parser.add_argument("--fresh", action="store_true",
                      help=f"measure again what {_RESULTS} has")
  parser.add_argument("--report_only", action="store_true",
                      help=f"make the report again from {_RESULTS}")
  return parser.parse_args()


def _start(args: argparse.Namespace, out: pathlib.Path) -> dict[str, Any]:
  """Returns what there is already, if this machine measured it."""
  path, facts = out / _RESULTS, machine.facts()
  there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
  if args.report_only:
    return dict(there)
  return {
      "command": shlex.join(["python", "-m", "benchmarks.links.wires"]),
      "machine": facts,
      "cells": there["cells"] if there.get("machine") == facts else []}


def _run(args: argparse.Namespace, content: dict[str, Any],
         out: pathlib.Path) -> None:
  """Measures the chosen cells, those that are there only if all are to be."""
  chosen = all_cells.matching(wanted_cells(), args.cells)
  has = {cells.Cell(**one["cell"]): one for one in content["cells"]}
  if args.fresh:
    content["cells"] = [one for cell, one in has.items() if cell not in chosen]
  missing = [cell for cell in chosen if args.fresh or cell not in has]
  # Processes keep what a load took, so each has new ones.
  together = lambda cell: (cell.rate != all_cells.LOOPBACK, cell.hosts,
                           cell.load)
  for (shaped, hosts, _), some in itertools.groupby(
      sorted(missing, key=together), together):
    with testbed.Testbed(hosts, 1, None, wires_report.WIRES, shaped) as bed:
      for cell in some:
        started = time.monotonic()
        measured = bed.measure(cell)
        content["cells"].append(measured.to_dict())
        output.write_json(str(out / _RESULTS), content)
        print(f"{cell}: {wires_report.brief(measured)} "
              f"({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
  sys.exit(main())
