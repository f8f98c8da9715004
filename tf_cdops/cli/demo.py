"""Trains a small model on several devices and shows that they agree.

A Keras model learns scikit-learn's handwritten digits under MirroredStrategy,
on logical CPU devices of this machine, with tf_cdops summing the gradients.
With --workers, the devices are those of as many TensorFlow servers, and with
--bandwidth each of these has a cable of its own:

    tf_cdops demo --workers=4 --devices=1 --bandwidth=100mbit
"""

import argparse
import dataclasses
from typing import Any

from tf_cdops.base import errors
from tf_cdops.cli import output
from tf_cdops.cli import site_flags
from tf_cdops.cluster import cables

NAME = "demo"
# The check that the demo makes: a run below this has learnt nothing.
_LEAST_ACCURACY = 0.90


def add_arguments(parser: argparse.ArgumentParser) -> None:
  site_flags.add_demo_arguments(parser)
  parser.add_argument("--epochs", type=int, default=15, metavar="N",
                      help="passes over the training data (default: 15)")


def run(args: argparse.Namespace) -> int:
  """Trains, prints the table, and returns 1 if a check failed."""
  errors.check_whole_number("--epochs", args.epochs, 1, 1000)
  site_flags.check_demo(args)
  if args.workers:
    cables.enter_network(shaped=args.bandwidth is not None)
  from tf_cdops.cli import digits  # Loads TensorFlow.
  outcome = digits.train(args.all_reduce_spec, args.devices, args.workers,
                         args.epochs, args.bandwidth)
  ok = outcome.identical and outcome.accuracy >= _LEAST_ACCURACY
  if args.json:
    output.print_json({"ok": ok, "least_accuracy": _LEAST_ACCURACY,
                       **dataclasses.asdict(outcome)})
  else:
    _print_table(outcome, ok)
  return 0 if ok else 1


def _print_table(outcome: Any, ok: bool) -> None:
  rows = {
      "all-reduce spec": outcome.all_reduce_spec,
      "replicas": str(outcome.replicas),
      "accuracy on held-out data":
          f"{outcome.accuracy:.1%} (at least {_LEAST_ACCURACY:.0%} wanted)",
      "step time, median": f"{outcome.step_seconds * 1e3:.1f} ms",
      "all-reduced each step":
          f"{outcome.tensors} tensors, {outcome.bytes:,} bytes a replica",
      "replicas bit-identical":
          f"{'yes' if outcome.identical else 'NO'}, "
          f"{outcome.variables} variables compared",
  }
  output.table("tf_cdops demo", ("", "outcome"), rows.items())
  if not outcome.identical:
    print("The replicas differ: please report it.")
  elif not ok:
    print("It has not learnt enough; give it more --epochs.")
  print("The demo passed." if ok else "The demo FAILED.")
