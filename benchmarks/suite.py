"""Measures everything that is claimed about speed, and writes a report.

    python benchmarks/suite.py [--out=benchmarks] [--cells=REGEX] [--quick]

Each cell runs in processes of its own. Writes results.json, RESULTS.md, which
is made from results.json alone, and scaling.png. Ctrl-C writes what there is.
"""

import argparse
import datetime
import importlib.util
import json
import pathlib
import shlex
import signal
import sys
import time
from typing import Any

# A script finds modules in its own folder; these are its parent's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import cells
from benchmarks import children
from benchmarks import machine
from benchmarks import report
from benchmarks import scaling_plot
from benchmarks import tasks

from tf_cdops.cluster import isolation
from tf_cdops.cli import output

_RESULTS, _REPORT, _PLOT = "results.json", "RESULTS.md", "scaling.png"


def main() -> int:
  """Returns 1 if a result of ours was wrong or a cell failed."""
  args = _parse()
  out = pathlib.Path(args.out)
  if args.report_only:
    content = json.loads((out / _RESULTS).read_text(encoding="utf-8"))
    _write_report(content, out)
    return 0
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  content = _start(args)
  started = time.monotonic()
  try:
    _run(tasks.all_tasks(args.quick, args.torch_python), args.cells, content)
  except KeyboardInterrupt:
    content["interrupted"] = True
  content["seconds"] = time.monotonic() - started
  output.write_json(str(out / _RESULTS), content)
  _write_report(content, out)
  print(f"Wrote {out / _RESULTS} and {out / _REPORT}.")
  if content["interrupted"]:
    return 130
  return 1 if content["failed"] or report.wrong_of_ours(content) else 0


def _parse() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--out", default=str(pathlib.Path(__file__).parent),
                      metavar="FOLDER", help="where to write (default: here)")
  parser.add_argument("--cells", default="", metavar="REGEX",
                      help="only cells with this in their name, such as "
                           "graph/resnet/8")
  parser.add_argument("--quick", action="store_true",
                      help="a few cells and steps, to see that it works")
  parser.add_argument("--report_only", action="store_true",
                      help=f"make the report again from {_RESULTS}")
  parser.add_argument(
      "--torch_python", metavar="PATH",
      default=sys.executable if importlib.util.find_spec("torch") else None,
      help="a Python that has PyTorch, for Gloo (default: this one if it has)")
  args = parser.parse_args()
  if not pathlib.Path(args.out).is_dir():
    parser.error(f"`--out` ({args.out}) must be a folder that is there.")
  return args


def _start(args: argparse.Namespace) -> dict[str, Any]:
  """Returns a report's content, with nothing measured yet."""
  notes = []
  # Before there is any thread; TensorFlow's servers need no other network.
  if not isolation.enter_private_network():
    notes.append("No private network could be had: other programs of this "
                 "machine's network could reach the workers.")
  return {
      "date": datetime.datetime.now(datetime.timezone.utc).strftime(
          "%Y-%m-%d %H:%M UTC"),
      "command": shlex.join(["python", "benchmarks/suite.py", *(
          argument for argument in sys.argv[1:]
          if argument.startswith(("--cells", "--quick")))]),
      "quick": args.quick, "interrupted": False, "machine": machine.facts(),
      "notes": notes, "failed": [],
      **{section: [] for section in tasks.SECTIONS}}


def _run(wanted: list[tasks.Task], pattern: str,
         content: dict[str, Any]) -> None:
  chosen = cells.matching(wanted, pattern)
  with output.progress("measuring", len(chosen)) as advance:
    for task in chosen:
      advance(0, description=str(task))
      started = time.monotonic()
      try:
        measured = task.run()
        content[task.section] += measured
        said = report.brief(task.section, measured)
      except children.ChildError as error:
        said = f"FAILED: {error}"
        content["failed"].append(f"{task}: {error}")
      advance()
      print(f"{task}: {said} ({time.monotonic() - started:.0f} s)",
            flush=True)


def _write_report(content: dict[str, Any], out: pathlib.Path) -> None:
  drawn = content["scaling"] and scaling_plot.draw(content["scaling"],
                                                   str(out / _PLOT))
  plot = _PLOT if drawn else None
  output.write_text(str(out / _REPORT), report.text(content, plot))


if __name__ == "__main__":
  sys.exit(main())
