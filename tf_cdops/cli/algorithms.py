"""Lists the all-reduce algorithms: what each does, needs and costs.

Any two make a pair: "xring/ps" runs xring inside each worker and ps across
workers. The table gives, for 2, 8 and 64 devices of one worker, the steps on
the critical path, and the most that any device sends, as a multiple of the
tensor's bytes. Algorithms of your own are listed too.
"""

import argparse

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology
from tf_cdops.cli import output
from tf_cdops.cost import usage
from tf_cdops.explaining import text_table
from tf_cdops.registry import proof

NAME = "algorithms"
_DEVICES = (2, 8, 64)
_LENGTH = 6720  # Cut evenly by each of them.
_COLUMNS = ("algorithm", "what it does", "steps on 2, 8, 64",
            "busiest sends", "needs")


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
    output.table("All-reduce algorithms on 2, 8 and 64 devices", _COLUMNS,
                 map(_row, known), wrap=output.width())
  return 0


def markdown() -> str:
  """Returns the table as Markdown."""
  rows = map(_row, registry.all_reduce_algorithms())
  return text_table.markdown(
      _COLUMNS, [(f"`{name}`", *rest) for name, *rest in rows])


def _row(algorithm: registry.Algorithm) -> tuple[str, ...]:
  needs = "" if algorithm.needs == "any devices" else algorithm.needs
  steps, sends = "—", "—"
  if _is_right(algorithm):
    used = [usage.count(algorithm, topology.Topology.grid(1, devices), _LENGTH)
            for devices in _DEVICES]
    steps = ", ".join(str(one.steps) for one in used)
    sends = ", ".join(f"{one.device_bytes[0].max() / _LENGTH:.3g}"
                      for one in used)
  modelled = " (modelled)" if algorithm.modelled else ""
  return (algorithm.name, algorithm.description, steps, sends + modelled,
          needs)


def _is_right(algorithm: registry.Algorithm) -> bool:
  try:
    proof.prove(algorithm, topology.Topology.grid(1, _DEVICES[0]), _LENGTH)
  except errors.ProofError:
    return False
  return True
