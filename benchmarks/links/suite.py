"""Measures all-reduces between hosts with cables, and writes a report.

    python -m benchmarks.links.suite [--cells=REGEX] [--quick] [--fresh]

It keeps what it measured after each cell, in links.json, and goes on from
there: Ctrl-C loses one cell at most. LINKS.md is made from links.json alone.
Linux and iproute2; root, or a system that lets users have namespaces.
"""

import argparse
import contextlib
import importlib.util
import itertools
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import children
from benchmarks import resuming
from benchmarks.links import cells
from benchmarks.links import report
from benchmarks.links import testbed

from tf_cdops.cli import output

_RESULTS, _REPORT = "links.json", "LINKS.md"


def main() -> int:
  """Returns 1 if a result of ours was wrong or a cell failed."""
  args, out = _parse()
  if args.report_only:
    _write_report(resuming.read(out / _RESULTS), out)
    return 0
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  if not resuming.enter_network():
    return 2
  content = _start(args, out)
  every = cells.quick_cells() if args.quick else cells.all_cells()
  interrupted = False
  try:
    _run(resuming.wanted(args, content, cells.Cell, every),
         args.torch_python, content, out)
  except KeyboardInterrupt:
    interrupted = True
  _write_report(content, out)
  print(f"Wrote {out / _RESULTS} and {out / _REPORT}.")
  if interrupted:
    return 130
  measured = [cells.Measured.from_dict(one) for one in content["cells"]]
  return 1 if content["failed"] or cells.wrong_of_ours(measured) else 0


def _parse() -> tuple[argparse.Namespace, pathlib.Path]:
  parser = resuming.parser(__doc__, _RESULTS, "4x1/200mbit/resnet")
  parser.add_argument("--quick", action="store_true",
                      help="a few cells, in 20 to 25 minutes")
  parser.add_argument(
      "--torch_python", metavar="PATH",
      default=sys.executable if importlib.util.find_spec("torch") else None,
      help="a Python that has PyTorch, for Gloo (default: this one if it has)")
  args = parser.parse_args()
  return args, resuming.check(parser, args, _RESULTS)


def _start(args: argparse.Namespace, out: pathlib.Path) -> dict[str, Any]:
  """Returns what there is already, or a report with nothing measured yet."""
  there = resuming.read(out / _RESULTS)
  content = {
      "command": "python -m benchmarks.links.suite" + " --quick" * args.quick,
      "quick": args.quick, "failed": [],
      **resuming.kept(there, cells.Cell, cells.all_cells())}
  note = "Gloo was left out: no PyTorch; --torch_python can name a Python."
  if not args.torch_python and note not in content["notes"]:
    content["notes"] = [*content["notes"], note]
  return content


def _run(wanted: Sequence[cells.Cell], torch_python: str | None,
         content: dict[str, Any], out: pathlib.Path) -> None:
  with output.progress("measuring", len(wanted)) as advance:
    # Each load has new processes. They keep memory that a load before took,
    # which adds up; and with it a step of 64 MB, once, took 1.2 times as long.
    same = lambda cell: (cell.devices, cell.hosts, cell.load)
    for _, some in itertools.groupby(sorted(wanted, key=same), same):
      _run_some(list(some), torch_python, content, out, advance)


def _run_some(some: list[cells.Cell], torch_python: str | None,
              content: dict[str, Any], out: pathlib.Path,
              advance: Callable[..., Any]) -> None:
  """Measures cells of one load and hosts; after a failure, in new processes."""
  while some:
    advance(0, description=f"{some[0]}: starting")
    tell = lambda **said: advance(0, **said)
    with contextlib.ExitStack() as stack:
      try:
        bed = None if some[0].is_vast else stack.enter_context(
            testbed.Testbed(some[0].hosts, some[0].devices, torch_python))
        while some:
          started = time.monotonic()
          measured = bed.measure(some[0], tell) if bed else (
              testbed.measure_apart(some[0], torch_python, tell))
          resuming.keep(content, measured)
          _tell(f"{some.pop(0)}: {report.brief(measured)}", started)
          output.write_json(str(out / _RESULTS), content)
          advance()
      except children.ChildError as error:
        failed = some.pop(0)
        content["failed"].append(f"{failed}: {error}")
        _tell(f"{failed}: FAILED: {error}", time.monotonic())


def _tell(what: str, started: float) -> None:
  print(f"{what} ({time.monotonic() - started:.0f} s)", flush=True)


def _write_report(content: dict[str, Any], out: pathlib.Path) -> None:
  output.write_text(str(out / _REPORT), report.text(content))


if __name__ == "__main__":
  sys.exit(main())
