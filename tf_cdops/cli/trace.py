"""Shows where the time of a few training steps goes, and writes a timeline.

The model is the demo's, on logical CPU devices of this machine; with --workers,
on those of as many TensorFlow servers, and with --bandwidth each of these has a
cable of its own:

    tf_cdops trace --out=trace.json
    tf_cdops trace --workers=2 --devices=1 --bandwidth=100mbit --html=page.html

https://ui.perfetto.dev and chrome://tracing open the file. For a program of
your own, give `fit` the callback tf_cdops.Timeline("trace.json").
"""

import argparse

from tf_cdops.base import errors
from tf_cdops.cli import output
from tf_cdops.cli import site_flags
from tf_cdops.cluster import cables

NAME = "trace"
_MAX_STEPS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument("--out", default="trace.json", metavar="FILE",
                      help="the timeline (default: trace.json)")
  parser.add_argument("--html", metavar="FILE", help="also write a page")
  parser.add_argument("--steps", type=int, default=3, metavar="N",
                      help="how many steps to show (default: 3)")
  site_flags.add_demo_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Trains and writes; returns 1 if no step was seen."""
  errors.check_whole_number("--steps", args.steps, 1, _MAX_STEPS)
  site_flags.check_demo(args)
  output.check_files(args, "out", "html")
  if args.workers:
    cables.enter_network(shaped=args.bandwidth is not None)
  from tf_cdops.cli import digits  # Loads TensorFlow.
  from tf_cdops.cli import timeline_report
  import tf_cdops
  timeline = tf_cdops.Timeline(args.out, args.steps, verbose=False)
  digits.trace(args.all_reduce_spec, args.devices, args.workers,
               args.bandwidth, timeline)
  if timeline.trace is None:  # A warning has said why.
    return 1
  return timeline_report.report(
      timeline.trace, args.out, args.html, args.json,
      f"Where a step's time goes: the demo's model, {args.all_reduce_spec}")
