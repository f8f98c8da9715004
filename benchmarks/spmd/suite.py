"""Measures SpmdStrategy against TensorFlow's own, and writes a report.

    python -m benchmarks.spmd.suite [--cells=REGEX] [--fresh]

It keeps what it measured after each cell, in spmd.json, and goes on from there:
Ctrl-C loses one cell at most. SPMD.md is made from spmd.json alone. Linux and
iproute2; root, or a system that lets users have namespaces.
"""

import argparse
import contextlib
import itertools
import pathlib
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import children
from benchmarks import resuming
from benchmarks.spmd import cells
from benchmarks.spmd import report
from benchmarks.spmd import testbed

from tf_cdops.cli import output

_RESULTS, _REPORT = "spmd.json", "SPMD.md"
# Of all hosts' tensors together, after which all processes are started anew.
_MOST_BYTES = 400 << 20


def main() -> int:
  """Returns 1 if a result of ours was wrong or a cell failed."""
  args, out = _parse()
  content = resuming.read(out / _RESULTS)
  if not args.report_only:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not resuming.enter_network():
      return 2
    every = cells.every_cell()
    content = {"command": "python -m benchmarks.spmd.suite", "failed": [],
               **resuming.kept(content, cells.Cell, every)}
    with contextlib.suppress(KeyboardInterrupt):
      _run(resuming.wanted(args, content, cells.Cell, every), content, out)
  output.write_text(str(out / _REPORT), report.text(content))
  print(f"Wrote {out / _REPORT}.")
  wrong = sum(one["wrong"] for cell in content["cells"]
              for one in cell["contenders"] if one["family"] == all_cells.OURS)
  return 1 if content["failed"] or wrong else 0


def _parse() -> tuple[argparse.Namespace, pathlib.Path]:
  parser = resuming.parser(__doc__, _RESULTS,
                           "4/200mbit/resnet or 2/loopback/small")
  args = parser.parse_args()
  return args, resuming.check(parser, args, _RESULTS)


def _run(wanted: list[cells.Cell], content: dict[str, Any],
         out: pathlib.Path) -> None:
  with output.progress("measuring", len(wanted)) as advance:
    for (hosts, *kind), some in itertools.groupby(wanted, lambda cell: (
        cell.hosts, cell.rate != cells.LOOPBACK, cell.batch is not None)):
      left = list(some)
      while left:
        advance(0, description=f"{hosts} hosts: starting")
        _run_some(testbed.Testbed(hosts, *kind), left, content, out, advance)


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
        resuming.keep(content, measured)
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
