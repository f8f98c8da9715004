"""Measures SpmdStrategy against TensorFlow's own, and writes a report.

    python -m benchmarks.spmd.suite [--cells=REGEX] [--fresh]

It keeps what it measured after each cell, in spmd.json, and goes on from there:
Ctrl-C loses one cell at most. SPMD.md is made from spmd.json alone. Linux and
iproute2; root, or a system that lets users have namespaces.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import children
from benchmarks import machine
from benchmarks.spmd import cells
from benchmarks.spmd import report
from benchmarks.spmd import testbed

from tf_cdops.base import errors
from tf_cdops.cli import output
from tf_cdops.cluster import cables

_RESULTS, _REPORT = "spmd.json", "SPMD.md"
# Of all hosts' tensors together, after which all processes are started anew.
_MOST_BYTES = 400 << 20
_FOLDER = pathlib.Path(__file__).resolve().parents[1]


def main() -> int:
  """Returns 1 if a result of ours was wrong or a cell failed."""
  args = _parse()
  out = pathlib.Path(args.out)
  content = _start(out)
  if not args.report_only:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
      cables.enter_network(shaped=True)  # Before there is any thread.
    except errors.ClusterError as error:
      print(f"No cables: {error}", file=sys.stderr)
      return 2
    with contextlib.suppress(KeyboardInterrupt):
      _run(_wanted(args, content), content, out)
  output.write_text(str(out / _REPORT), report.text(content))
  print(f"Wrote {out / _REPORT}.")
  wrong = sum(one["wrong"] for cell in content["cells"]
              for one in cell["contenders"] if one["family"] == all_cells.OURS)
  return 1 if content["failed"] or wrong else 0


def _parse() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--out", default=str(_FOLDER), metavar="FOLDER",
                      help="where to write (default: benchmarks/)")
  parser.add_argument("--cells", default="", metavar="REGEX",
                      help="only cells with this in their name, such as "
                           "4/200mbit/resnet or 2/loopback/small")
  parser.add_argument("--fresh", action="store_true",
                      help=f"measure again what {_RESULTS} has")
  parser.add_argument("--report_only", action="store_true",
                      help=f"make the report again from {_RESULTS}")
  args = parser.parse_args()
  if not pathlib.Path(args.out).is_dir():
    parser.error(f"`--out` ({args.out}) must be a folder that is there.")
  if args.report_only and not (pathlib.Path(args.out) / _RESULTS).exists():
    parser.error(f"`--out` ({args.out}) must have {_RESULTS}; run without "
                 "--report_only first.")
  return args


def _start(out: pathlib.Path) -> dict[str, Any]:
  """Returns what there is already, or a report with nothing measured yet."""
  there: dict[str, Any] = {"machine": None}
  if (out / _RESULTS).exists():
    there = json.loads((out / _RESULTS).read_text(encoding="utf-8"))
  if there["machine"] == machine.facts():
    known = set(cells.every_cell())  # There may have been others.
    return there | {"failed": [], "cells": [
        one for one in there["cells"] if cells.Cell(**one["cell"]) in known]}
  return {"command": "python -m benchmarks.spmd.suite",
          "machine": machine.facts(), "failed": [], "cells": []}


def _wanted(args: argparse.Namespace,
            content: dict[str, Any]) -> list[cells.Cell]:
  """Returns the cells that are to be measured; drops what `--fresh` renews."""
  chosen = all_cells.matching(cells.every_cell(), args.cells)
  has = {cells.Cell(**one["cell"]): one for one in content["cells"]}
  if args.fresh:
    content["cells"] = [one for cell, one in has.items() if cell not in chosen]
    return chosen
  return [cell for cell in chosen if cell not in has]


def _run(wanted: list[cells.Cell], content: dict[str, Any],
         out: pathlib.Path) -> None:
  with output.progress("measuring", len(wanted)) as advance:
    for (hosts, shaped), some in itertools.groupby(
        wanted, lambda cell: (cell.hosts, cell.rate != cells.LOOPBACK)):
      left = list(some)
      while left:
        advance(0, description=f"{hosts} hosts: starting")
        _run_some(testbed.Testbed(hosts, shaped), left, content, out, advance)


def _run_some(bed: testbed.Testbed, some: list[cells.Cell],
              content: dict[str, Any], out: pathlib.Path,
              advance: Callable[..., Any]) -> None:
  """Measures cells, until one fails or leaves too little memory."""
  started = time.monotonic()
  with contextlib.ExitStack() as stack:
    try:
      stack.enter_context(bed)
      is_full = False
      while some and not is_full:
        started = time.monotonic()
        measured = bed.measure(some[0], lambda **said: advance(0, **said))
        content["cells"].append(measured.to_dict())
        output.write_json(str(out / _RESULTS), content)
        is_full = measured.cell.hosts * measured.cell.num_bytes > _MOST_BYTES
        _tell(f"{some.pop(0)}: {report.brief(measured)}", started)
        advance()
    except children.ChildError as error:
      failed = some.pop(0)
      content["failed"].append(f"{failed}: {error}")
      _tell(f"{failed}: FAILED: {error}", started)


def _tell(what: str, started: float) -> None:
  print(f"{what} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
  sys.exit(main())
