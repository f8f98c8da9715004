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
import json
import pathlib
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import children
from benchmarks import machine
from benchmarks.links import cells
from benchmarks.links import report
from benchmarks.links import testbed

from tf_cdops.base import errors
from tf_cdops.cli import output
from tf_cdops.cluster import cables

_RESULTS, _REPORT = "links.json", "LINKS.md"
# All processes are started anew after a load with so many bytes on all devices
# together; and after any, on so many devices: what they keep adds up.
_MOST_BYTES, _MANY_DEVICES = 400 << 20, 16
_FOLDER = pathlib.Path(__file__).resolve().parents[1]


def main() -> int:
  """Returns 1 if a result of ours was wrong or a cell failed."""
  args = _parse()
  out = pathlib.Path(args.out)
  if args.report_only:
    _write_report(_read(out), out)
    return 0
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  try:
    cables.enter_network(shaped=True)  # Before there is any thread.
  except errors.ClusterError as error:
    print(f"No cables: {error}", file=sys.stderr)
    return 2
  content = _start(args, out)
  interrupted = False
  try:
    _run(_wanted(args, content), args.torch_python, content, out)
  except KeyboardInterrupt:
    interrupted = True
  _write_report(content, out)
  print(f"Wrote {out / _RESULTS} and {out / _REPORT}.")
  if interrupted:
    return 130
  measured = [cells.Measured.from_dict(one) for one in content["cells"]]
  return 1 if content["failed"] or cells.wrong_of_ours(measured) else 0


def _parse() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--out", default=str(_FOLDER), metavar="FOLDER",
                      help="where to write (default: benchmarks/)")
  parser.add_argument("--cells", default="", metavar="REGEX",
                      help="only cells with this in their name, such as "
                           "4x1/200mbit/resnet")
  parser.add_argument("--quick", action="store_true",
                      help="a few cells, in about 20 minutes")
  parser.add_argument("--fresh", action="store_true",
                      help="measure again what links.json has")
  parser.add_argument("--report_only", action="store_true",
                      help=f"make the report again from {_RESULTS}")
  parser.add_argument(
      "--torch_python", metavar="PATH",
      default=sys.executable if importlib.util.find_spec("torch") else None,
      help="a Python that has PyTorch, for Gloo (default: this one if it has)")
  args = parser.parse_args()
  if not pathlib.Path(args.out).is_dir():
    parser.error(f"`--out` ({args.out}) must be a folder that is there.")
  if args.report_only and not (pathlib.Path(args.out) / _RESULTS).exists():
    parser.error(f"`--out` ({args.out}) must have {_RESULTS}; run without "
                 "--report_only first.")
  return args


def _read(out: pathlib.Path) -> dict[str, Any]:
  content: dict[str, Any] = json.loads(
      (out / _RESULTS).read_text(encoding="utf-8"))
  return content


def _start(args: argparse.Namespace, out: pathlib.Path) -> dict[str, Any]:
  """Returns what there is already, or a report with nothing measured yet."""
  facts = machine.facts()
  there = _read(out) if (out / _RESULTS).exists() else None
  kept = [] if there is None or there["machine"] != facts else there["cells"]
  return {
      "command": shlex.join(["python", "-m", "benchmarks.links.suite", *(
          argument for argument in sys.argv[1:]
          if argument.startswith(("--cells", "--quick")))]),
      "quick": args.quick, "machine": facts,
      "notes": [] if args.torch_python else [
          "Gloo was left out: no PyTorch; --torch_python can name a Python."],
      "failed": [], "cells": kept}


def _wanted(args: argparse.Namespace,
            content: dict[str, Any]) -> list[cells.Cell]:
  """Returns the cells that are to be measured; drops what `--fresh` renews."""
  chosen = all_cells.matching(
      cells.quick_cells() if args.quick else cells.all_cells(), args.cells)
  has = {cells.Cell(**one["cell"]): one for one in content["cells"]}
  if args.fresh:
    content["cells"] = [one for cell, one in has.items() if cell not in chosen]
    return chosen
  return [cell for cell in chosen if cell not in has]


def _run(wanted: Sequence[cells.Cell], torch_python: str | None,
         content: dict[str, Any], out: pathlib.Path) -> None:
  with output.progress("measuring", len(wanted)) as advance:
    # Those that are next to each other and have the same hosts.
    for (hosts, devices), some in itertools.groupby(
        wanted, lambda cell: (cell.hosts, cell.devices)):
      _run_on(hosts, devices, list(some), torch_python, content, out, advance)


def _run_on(hosts: int, devices: int, some: list[cells.Cell],
            torch_python: str | None, content: dict[str, Any],
            out: pathlib.Path, advance: Callable[..., Any]) -> None:
  """Measures cells of the same hosts; after a failure, on new ones.

  So, too, after a load that left too little memory: processes keep what a load
  took, and three groups of them have it.
  """
  while some:
    advance(0, description=f"{hosts} hosts of {devices}: starting")
    with contextlib.ExitStack() as stack:
      try:
        bed = stack.enter_context(
            testbed.Testbed(hosts, devices, torch_python))
        is_full = False
        while some and not is_full:
          started = time.monotonic()
          measured = bed.measure(some[0], lambda **said: advance(0, **said))
          content["cells"].append(measured.to_dict())
          is_full = (hosts * devices >= _MANY_DEVICES
                     or hosts * devices * measured.cell.num_bytes
                     > _MOST_BYTES)
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
