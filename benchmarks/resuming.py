"""What suites share that keep what they measured, cell by cell.

Such a suite goes on where it was stopped: Ctrl-C loses one cell at most. Its
results are a JSON file of a dictionary with `machine` and `cells`, from which
alone its report is made.
"""

import argparse
import collections
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import machine

from tf_cdops.base import errors
from tf_cdops.cluster import cables
from tf_cdops.explaining import text_table

_FOLDER = pathlib.Path(__file__).resolve().parent


def parser(description: str | None, results: str,
           example: str) -> argparse.ArgumentParser:
  """Returns a parser with the arguments that such suites have.

  Args:
    description: of the program.
    results: its file.
    example: of cells' names.
  """
  made = argparse.ArgumentParser(
      description=description, formatter_class=argparse.RawTextHelpFormatter)
  made.add_argument("--out", default=str(_FOLDER), metavar="FOLDER",
                    help="where to write (default: benchmarks/)")
  made.add_argument("--cells", default="", metavar="REGEX",
                    help="only cells with this in their name, such as "
                         f"{example}")
  made.add_argument("--fresh", action="store_true",
                    help=f"measure again what {results} has")
  made.add_argument("--report_only", action="store_true",
                    help=f"make the report again from {results}")
  return made


def check(made: argparse.ArgumentParser, args: argparse.Namespace,
          results: str) -> pathlib.Path:
  """Returns the folder, if the arguments are right; else ends the program."""
  folder = pathlib.Path(args.out)
  if not folder.is_dir():
    made.error(f"`--out` ({args.out}) must be a folder that is there.")
  if args.report_only and not (folder / results).exists():
    made.error(f"`--out` ({args.out}) must have {results}; run without "
               "--report_only first.")
  return folder


def read(path: pathlib.Path) -> dict[str, Any]:
  """Returns what is there already; nothing is if there is no file."""
  return (json.loads(path.read_text(encoding="utf-8")) if path.exists()
          else {"machine": None})


def kept(there: dict[str, Any], make: Callable[..., Any],
         every: Sequence[Any]) -> dict[str, Any]:
  """Returns what holds still: cells of such machines that are still wanted.

  Contenders of one cell ran on one machine, in turns, and ratios are all that
  is looked at. So those of another CPU hold; those of other versions don't.
  Notes that somebody wrote stay with them.
  """
  facts = machine.facts()
  before = there["machine"] or {}
  known = set(every)
  cells = [{"cpu": before["CPU"]} | one for one in there.get("cells", ())
           if before | {"CPU": facts["CPU"]} == facts
           and make(**one["cell"]) in known]
  return {"machine": facts, "cells": cells,
          "notes": there.get("notes", []) if cells else []}


def keep(content: dict[str, Any], measured: Any) -> None:
  """Adds a cell, with the CPU on which it was measured."""
  content["cells"].append(
      {"cpu": content["machine"]["CPU"]} | measured.to_dict())


def machine_table(content: dict[str, Any]) -> str:
  """Returns the machine, or the several, as a table in Markdown."""
  cpus = collections.Counter(one.get("cpu", content["machine"].get("CPU"))
                             for one in content["cells"])
  facts = dict(content["machine"])
  if len(cpus) > 1:
    facts["CPU"] = "; ".join(f"{cpu}: {count} cells"
                             for cpu, count in cpus.most_common())
  return text_table.markdown(("", ""), facts.items())


def wanted(args: argparse.Namespace, content: dict[str, Any],
           make: Callable[..., Any], every: Sequence[Any]) -> list[Any]:
  """Returns the cells that are to be measured; drops what `--fresh` renews."""
  chosen = all_cells.matching(every, args.cells)
  has = {make(**one["cell"]): one for one in content["cells"]}
  if args.fresh:
    content["cells"] = [one for cell, one in has.items() if cell not in chosen]
    return chosen
  return [cell for cell in chosen if cell not in has]


def enter_network() -> bool:
  """Enters a network with cables; says why, if it can't be had.

  To be called before there is any thread.
  """
  try:
    cables.enter_network(shaped=True)
  except errors.ClusterError as error:
    print(f"No cables: {error}", file=sys.stderr)
    return False
  return True
