"""Lists the all-reduce algorithms: what each does, needs and costs.

Any two make a pair: "xring/ps" runs xring inside each worker and ps across
workers. For p devices and a tensor of n bytes the table gives the steps, one
after the other, and what a device sends. Algorithms of your own are listed
too, with what a trace of 8 devices counts if they give no formula.
"""

import argparse

from tf_cdops import errors
from tf_cdops import topology
from tf_cdops.algorithms import proof
from tf_cdops.algorithms import registry
from tf_cdops.cli import output
from tf_cdops.explaining import text_table

NAME = "algorithms"
_TRACED = 8
_COLUMNS = ("algorithm", "what it does", "steps", "a device sends", "needs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument("--markdown", action="store_true",
                      help="print the table as Markdown")


def run(args: argparse.Namespace) -> int:
  """Prints the table."""
  known = registry.all_reduce_algorithms()
  if args.json:
    output.print_json({"algorithms": [
        dict(zip(("name", "description", "steps", "bytes", "needs"),
                 _row(algorithm), strict=True)) for algorithm in known]})
  elif args.markdown:
    print(markdown())
  else:
    output.table("All-reduce algorithms, for p devices and n bytes", _COLUMNS,
                 map(_row, known), wrap=output.width())
  return 0


def markdown() -> str:
  """Returns the table as Markdown."""
  rows = map(_row, registry.all_reduce_algorithms())
  return text_table.markdown(
      _COLUMNS, [(f"`{name}`", *rest) for name, *rest in rows])


def _row(algorithm: registry.Algorithm) -> tuple[str, ...]:
  steps, sends = algorithm.steps_formula, algorithm.bytes_formula
  if not steps or not sends:
    traced = _trace(algorithm)
    steps, sends = steps or traced[0], sends or traced[1]
  needs = "" if algorithm.needs == "any devices" else algorithm.needs
  return algorithm.name, algorithm.description, steps, sends, needs


def _trace(algorithm: registry.Algorithm) -> tuple[str, str]:
  """What a trace counts, for those that give no formula."""
  length = 840  # Cut evenly by any number up to 8.
  try:
    cost = proof.prove(
        algorithm, topology.Topology.grid(1, _TRACED), length).cost
  except errors.ProofError:
    return "—", "—"
  return (f"{cost.steps} if p = {_TRACED}",
          f"up to {(cost.busiest or 0) / length:.3g}n if p = {_TRACED}")
