"""Trains a small model on several devices and shows that they agree.

A Keras model learns scikit-learn's handwritten digits under MirroredStrategy,
on logical CPU devices of this machine, with tf_cdops summing the gradients.
"""

import argparse
from typing import Any

from tf_cdops import errors

NAME = "demo"
_MAX_DEVICES = 64
# The check that the demo makes: a run below this has learnt nothing.
_LEAST_ACCURACY = 0.90


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument("--devices", type=int, default=4, metavar="N",
                      help="number of logical CPU devices (default: 4)")
  parser.add_argument("--epochs", type=int, default=15, metavar="N",
                      help="passes over the training data (default: 15)")


def run(args: argparse.Namespace) -> int:
  """Trains, prints the table, and returns 1 if a check failed."""
  for name, most in (("devices", _MAX_DEVICES), ("epochs", 1000)):
    if not 1 <= getattr(args, name) <= most:
      raise errors.InputError(
          f"`--{name}` ({getattr(args, name)}) must be from 1 to {most}.")
  from tf_cdops.cli import digits  # Loads TensorFlow.
  outcome = digits.train(args.devices, args.epochs)
  ok = outcome.identical and outcome.accuracy >= _LEAST_ACCURACY
  _print_table(outcome, ok)
  return 0 if ok else 1


def _print_table(outcome: Any, ok: bool) -> None:
  import rich.console
  import rich.table
  rows = {
      "cross-device ops": outcome.cross_device_ops,
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
  table = rich.table.Table(title="tf_cdops demo", show_header=False)
  for label, text in rows.items():
    table.add_row(label, text)
  console = rich.console.Console()
  console.print(table)
  console.print("The demo passed." if ok else "The demo FAILED.")
