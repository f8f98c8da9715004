"""Shows what bench measured, in the columns of nccl-tests."""

import argparse
import dataclasses
import itertools
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
_OF_LEAST = ">of least"  # With cables only.


@dataclasses.dataclass
class Outcome:
  """What there is so far: it grows, so that Ctrl-C doesn't lose it.

  Attributes:
    results: of one rate after another.
    notes: what else there is to say.
    interrupted: whether Ctrl-C ended it.
    load: what is reduced, if that is one load.
  """

  results: "list[results_lib.Result]" = dataclasses.field(default_factory=list)
  notes: list[str] = dataclasses.field(default_factory=list)
  interrupted: bool = False
  load: str | None = None


def report(args: argparse.Namespace, site: "sites.Site",
           outcome: Outcome) -> None:
  """Prints a table or JSON, and writes the files that were asked for."""
  notes = list(dict.fromkeys(outcome.notes))
  content = {
      "tf_cdops": version.__version__,
      "devices": list(site.devices),
      "bandwidth": args.bandwidth,
      "eager": args.eager,
      "interrupted": outcome.interrupted,
      "notes": notes,
      "results": [result.to_dict() for result in outcome.results],
  }
  if args.json:
    output.print_json(content)
  else:
    _print_tables(args, site, outcome.results)
    for note in notes:
      print(note)
    if outcome.interrupted:
      print("Interrupted: this is what there was so far.", file=sys.stderr)
  if args.out is not None:
    output.write_json(args.out, content)
  if args.plot is not None and outcome.results:
    bench_plot.draw(outcome.results, _title(outcome, site), args.plot)


def _print_tables(args: argparse.Namespace, site: "sites.Site",
                  results: "list[results_lib.Result]") -> None:
  """Prints a table for each rate, or the only one."""
  mode = "eager" if args.eager else "in a tf.function"
  for bandwidth, group in itertools.groupby(results, lambda r: r.bandwidth):
    at_rate = dataclasses.replace(site, bandwidth=bandwidth)
    measured = list(group)
    columns = [*_COLUMNS, *([_OF_LEAST] if measured[0].least_seconds else [])]
    output.table(f"all-reduce among {at_rate}, {mode}", columns,
                 _rows(measured, len(columns)))


def _title(outcome: Outcome, site: "sites.Site") -> str:
  """Returns the chart's: what its axes don't say."""
  if len({result.bandwidth for result in outcome.results}) > 1:
    site = dataclasses.replace(site, bandwidth=None)
  load = f" of {outcome.load}" if outcome.load else ""
  return f"All-reduce{load} among {site}"


def _rows(results: "list[results_lib.Result]",
          num_columns: int) -> list[list[str]]:
  """Returns a row for each load, and below it one for each contender."""
  from tf_cdops.cli.measuring import steps
  rows, last = [], None
  for result in results:
    load = (f"{spec_lib.format_bytes(result.num_bytes)}: "
            f"{result.num_elements:,} {result.dtype}")
    if load != last:
      rows.append([load] + [""] * (num_columns - 1))
      last = load
    times = (result.time.least, result.time.median, result.time.p99)
    bus = "" if result.contender == steps.FLOOR else _short(result.busbw / 1e9)
    rows.append([f"  {result.contender}", *(_short(t * 1e3) for t in times),
                 _short(result.algbw / 1e9), bus, f"{result.wrong:,}"])
    if result.least_seconds:
      rows[-1].append(f"{result.time.median / result.least_seconds:.2f}")
  return rows


def _short(number: float) -> str:
  """Few digits, but enough to tell small numbers apart."""
  if number >= 100:
    return f"{number:.0f}"
  return f"{number:.2f}" if number >= 1 else f"{number:.4f}"
