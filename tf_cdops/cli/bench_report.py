"""Shows what bench measured, in the columns of nccl-tests."""

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING

from tf_cdops.base import version
from tf_cdops.cli import bench_plot
from tf_cdops.cli import output
from tf_cdops.planning import spec as spec_lib

if TYPE_CHECKING:
  from tf_cdops.cli.measuring import results as results_lib
  from tf_cdops.cli.measuring import sites

_COLUMNS = ("size: count, type", ">min ms", ">p50 ms", ">p99 ms",
            ">algbw GB/s", ">busbw GB/s", ">#wrong")


@dataclasses.dataclass
class Outcome:
  """What there is so far: it grows, so that Ctrl-C doesn't lose it."""

  results: "list[results_lib.Result]" = dataclasses.field(default_factory=list)
  notes: list[str] = dataclasses.field(default_factory=list)
  interrupted: bool = False


def report(args: argparse.Namespace, site: "sites.Site",
           outcome: Outcome) -> None:
  """Prints a table or JSON, and writes the files that were asked for."""
  notes = list(dict.fromkeys(outcome.notes))
  content = {
      "tf_cdops": version.__version__,
      "devices": list(site.devices),
      "bandwidth": site.bandwidth,
      "eager": args.eager,
      "interrupted": outcome.interrupted,
      "notes": notes,
      "results": [result.to_dict() for result in outcome.results],
  }
  if args.json:
    output.print_json(content)
  else:
    mode = "eager" if args.eager else "in a tf.function"
    output.table(f"all-reduce among {site}, {mode}", _COLUMNS,
                 _rows(outcome.results))
    for note in notes:
      print(note)
    if outcome.interrupted:
      print("Interrupted: this is what there was so far.", file=sys.stderr)
  if args.out is not None:
    output.write_json(args.out, content)
  if args.plot is not None and outcome.results:
    bench_plot.draw(outcome.results, f"All-reduce among {site}", args.plot)


def _rows(results: "list[results_lib.Result]") -> list[list[str]]:
  """Returns a row for each load, and below it one for each contender."""
  from tf_cdops.cli.measuring import steps
  rows, last = [], None
  for result in results:
    load = (f"{spec_lib.format_bytes(result.num_bytes)}: "
            f"{result.num_elements:,} {result.dtype}")
    if load != last:
      rows.append([load] + [""] * (len(_COLUMNS) - 1))
      last = load
    times = (result.time.least, result.time.median, result.time.p99)
    bus = "" if result.contender == steps.FLOOR else _short(result.busbw / 1e9)
    rows.append([f"  {result.contender}", *(_short(t * 1e3) for t in times),
                 _short(result.algbw / 1e9), bus, f"{result.wrong:,}"])
  return rows


def _short(number: float) -> str:
  """Few digits, but enough to tell small numbers apart."""
  if number >= 100:
    return f"{number:.0f}"
  return f"{number:.2f}" if number >= 1 else f"{number:.4f}"
