"""Measures all-reduces side by side, ours and TensorFlow's own.

All contenders run in one process, their steps interleaved, on the same inputs:
look at the ratios, since absolute times vary from run to run. Every element of
every result is compared with the exact sum. Sizes are swept from --min to
--max, one tensor at a time, or are those of a model's gradients:

    tf_cdops bench --devices=8 --specs=auto,xring,ps#2 --plot=bench.png
    tf_cdops bench --devices=8 --model=ResNet50
    tf_cdops bench --cluster=10.0.0.5:2222,10.0.0.6:2222 --specs=auto,xring
    tf_cdops bench --workers=4 --bandwidth=100mbit,1gbit --sizes=16m
    tf_cdops bench --workers=4 --bandwidth=200mbit --sizes=16m --wire=none,int8

The columns are those of nccl-tests. algbw: bytes reduced a second. busbw: that
times 2(p-1)/p for p devices, which is what each device's link carries at
least, and can be held against the hardware. #wrong: elements that aren't the
exact sum; TensorFlow's HierarchicalCopy loses a replica where their number is
odd. With --wire each spec runs with each wire, and #wrong counts what isn't
within the wire's bound, or differs among replicas. The floor is a bare AddN of
the same bytes in one place. With cables of a known rate, "of least" is the
median by the least that any all-reduce of these bytes can take: for n bytes and
W workers, 2n(W-1)/W over the rate.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.cli import bench_plot
from tf_cdops.cli import bench_report
from tf_cdops.cli import loads
from tf_cdops.cli import output
from tf_cdops.cli import site_flags
from tf_cdops.cli import wire_flags
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

if TYPE_CHECKING:
  from tf_cdops.cli.measuring import contenders as contenders_lib
  from tf_cdops.cli.measuring import exact_inputs
  from tf_cdops.cli.measuring import sites
  from tf_cdops.cli.measuring import steps as steps_lib

NAME = "bench"
# Those of them that the devices can run.
_DEFAULT_SPECS = "auto,nccl,ps,pscpu/pscpu#2,xring,rechd,collective"
_SWEEP = {"min": ("1k", "the smallest"), "max": ("64m", "the largest"),
          "factor": ("4", "from one to the next")}


class _Way(NamedTuple):
  """A spec of ours, and how its messages are encoded."""

  spec: str
  wire: registry.Wire | None

  def __str__(self) -> str:
    return f"{self.spec}, {self.wire}" if self.wire else self.spec


def add_arguments(parser: argparse.ArgumentParser) -> None:
  site_flags.add_arguments(parser, several_rates=True)
  loads.add_arguments(parser)
  sweep = parser.add_argument_group("sizes to sweep, if none are given")
  for flag, (default, meaning) in _SWEEP.items():
    sweep.add_argument(f"--{flag}", metavar="N",
                       help=f"{meaning} (default: {default})")
  who = parser.add_argument_group("whom to measure, and how")
  who.add_argument("--specs", metavar="LIST",
                   help="comma-separated; empty for none (default: those of "
                        f"{_DEFAULT_SPECS} that can run)")
  who.add_argument("--tensorflow", action="store_true", default=True,
                   help="also TensorFlow's own classes (default)")
  who.add_argument("--notensorflow", dest="tensorflow", action="store_false",
                   help="not those")
  who.add_argument("--eager", action="store_true",
                   help="in eager code, without a tf.function")
  who.add_argument("--steps", type=int, default=20, metavar="N",
                   help="timed steps of each (default: 20)")
  wire_flags.add_arguments(parser, "each spec runs with each of these")
  parser.add_argument("--out", metavar="FILE", help="also write JSON")
  parser.add_argument("--trace", metavar="FILE",
                      help="also write a timeline of the first spec, on the "
                           "largest load; see `tf_cdops trace`")
  parser.add_argument("--plot", metavar="FILE",
                      help="draw a chart; .png, .svg or .pdf (matplotlib): "
                           "time over sizes, or over several rates")


def run(args: argparse.Namespace) -> int:
  """Measures; returns 1 if a result of ours was wrong."""
  specs = _check(args)
  outcome = bench_report.Outcome()
  with site_flags.opened(args) as site:
    # Codecs are TensorFlow's, which must not be there before cables are.
    ways = [_Way(*way) for way in itertools.product(
        specs, wire_flags.parse(args))]
    try:
      _measure(args, site, ways, outcome)
    except KeyboardInterrupt:
      outcome.interrupted = True
    bench_report.report(args, site, outcome)
  if outcome.interrupted:
    return 130
  return 1 if any(r.ours and r.wrong for r in outcome.results) else 0


def _check(args: argparse.Namespace) -> list[str]:
  """Raises for wrong flags; returns the specs, each of them parsed once."""
  site_flags.check(args, several_rates=True)
  errors.check_whole_number("--steps", args.steps, 1)
  if args.eager and (args.workers or args.cluster):
    raise errors.InputError(
        "`--eager` measures the devices of this process; leave out "
        f"--{'workers' if args.workers else 'cluster'}.")
  swept = [flag for flag in _SWEEP if getattr(args, flag) is not None]
  several_loads = not loads.given(args) and len(_sweep(args)) > 1
  if loads.given(args) and swept:
    raise errors.InputError(
        f"`--{swept[0]}` ({getattr(args, swept[0])}) must be left out where "
        "sizes or a model are given: it is for sweeping sizes.")
  given = _DEFAULT_SPECS if args.specs is None else args.specs
  specs = [text.strip() for text in given.split(",") if text.strip()]
  for text in specs:
    planner.parse_all_reduce_spec(text, "--specs")
  if not specs and not args.tensorflow:
    raise errors.InputError(
        f"`--specs` ({args.specs!r}) must name something to measure, such as "
        f"{_DEFAULT_SPECS}.")
  if args.trace is not None and (args.eager or not specs):
    raise errors.InputError(
        f"`--trace` ({args.trace!r}) shows a spec's tf.function; "
        f"{'leave out --eager.' if args.eager else 'give --specs.'}")
  output.check_files(args, "out", "plot", "trace")
  if args.plot is not None:
    bench_plot.check(args.plot)
    if several_loads and len(site_flags.bandwidths(args)) > 1:
      raise errors.InputError(
          f"`--plot` ({args.plot!r}) must show one load where `--bandwidth` "
          f"({args.bandwidth}) has several rates; give a load (--sizes=16m, or "
          "--model=ResNet50), or one rate.")
  return list(dict.fromkeys(specs))


def _sweep(args: argparse.Namespace) -> list[loads.Load]:
  """Returns one load a size, from --min to --max."""
  dtype = args.dtype or "float32"
  given = {flag: getattr(args, flag) or default
           for flag, (default, _) in _SWEEP.items()}
  least = spec_lib.parse_bytes(given["min"], "--min")
  most = spec_lib.parse_bytes(given["max"], "--max")
  factor = errors.check_whole_number(
      "--factor", int(given["factor"]) if given["factor"].isdecimal()
      else given["factor"], 2)
  if not loads.DTYPES[dtype] <= least <= most:
    raise errors.InputError(
        f"`--min` ({given['min']}) must be at least {loads.DTYPES[dtype]}, a "
        f"{dtype}, and at most `--max` ({given['max']}).")
  swept = []
  while least <= most:
    elements = least // loads.DTYPES[dtype]
    size = planner.TensorSize.from_shape((elements,), dtype)
    swept.append(loads.Load(spec_lib.format_bytes(least), (size,)))
    least *= factor
  return swept


def _measure(args: argparse.Namespace, site: "sites.Site", ways: list[_Way],
             outcome: bench_report.Outcome) -> None:
  from tf_cdops.cli.measuring import exact_inputs
  from tf_cdops.cli.measuring import memory
  wanted = [loads.from_args(args)] if loads.given(args) else _sweep(args)
  largest = max(wanted, key=lambda load: load.num_bytes)
  if not site.is_elsewhere:
    memory.check_fits(largest.num_bytes, len(site.devices), largest.name)
  outcome.load = wanted[0].name if len(wanted) == 1 else None
  ways = _runnable(ways, wanted, site, args.specs is None)
  total = (max(1, len(site_flags.bandwidths(args))) * len(wanted)
           * (len(_field(args, ways, site)) + args.steps))
  with output.progress("measuring", total) as advance:
    for rated in _at_each_rate(args, site):
      field = _field(args, ways, rated)
      at = f" at {rated.bandwidth}" if rated.bandwidth else ""
      for load in wanted:
        advance(0, description=f"measuring {load.name}{at}")
        _compare(args, field, exact_inputs.make(rated, load.sizes), outcome,
                 advance)
  if args.trace is not None:
    from tf_cdops.cli.measuring import traced
    outcome.notes.append(traced.write(
        args.trace, field[0], exact_inputs.make(rated, largest.sizes)))


def _at_each_rate(args: argparse.Namespace,
                  site: "sites.Site") -> "Iterator[sites.Site]":
  """Yields the site; then again, its cables changed, for each other rate."""
  yield site
  for bandwidth in site_flags.bandwidths(args)[1:]:
    yield site.with_bandwidth(bandwidth)


def _field(args: argparse.Namespace, ways: list[_Way],
           site: "sites.Site") -> "list[contenders_lib.Contender]":
  """Returns all contenders; "auto" goes by the site's link."""
  from tf_cdops.cli.measuring import contenders
  field = [contenders.of_spec(way.spec, name=str(way), link=site.link,
                              wire=way.wire) for way in ways]
  return [*field, *(contenders.of_tensorflow() if args.tensorflow else ())]


def _runnable(ways: list[_Way], wanted: list[loads.Load], site: "sites.Site",
              drop: bool) -> list[_Way]:
  """Returns the ways that the devices can go; raises unless it may drop."""
  from tf_cdops.cli.measuring import contenders
  kept = []
  for way in ways:
    try:
      for load in wanted:
        contenders.check_spec(way.spec, site.topology, load.sizes, way.wire)
      kept.append(way)
    except errors.AlgorithmError:
      if not drop:
        raise
  return kept


def _compare(args: argparse.Namespace,
             field: "list[contenders_lib.Contender]",
             inputs: "exact_inputs.Inputs", outcome: bench_report.Outcome,
             advance: Callable[..., None]) -> None:
  """Measures all contenders on one load."""
  from tf_cdops.cli.measuring import comparison
  from tf_cdops.cli.measuring import steps
  compared = comparison.Comparison(inputs)
  try:
    for contender in field:
      try:
        step = steps.build(contender, inputs, args.eager)
        compared.add(step)
        if contender.wire is not None:
          outcome.notes.append(_about_wire(step))
      except Exception as error:  # TensorFlow's own may raise anything.
        if contender.ours:
          raise
        outcome.notes.append(
            f"{contender.name} can't run here: {output.brief(error)}")
      advance()
    if inputs.site.is_local:
      compared.add(steps.build_floor(inputs, args.eager))
    compared.run(args.steps, after_each=advance)
  finally:  # An interrupt too: what there is, is worth showing.
    outcome.results += compared.results()


def _about_wire(step: "steps_lib.Step") -> str:
  return (f"{step.name}: no message is encoded here; `tf_cdops explain` says "
          "why." if step.tolerance is None else
          f"{step.name}: #wrong counts what isn't {step.tolerance}.")
