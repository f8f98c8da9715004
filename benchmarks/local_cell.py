"""A process that measures one cell of this machine's logical CPU devices.

TensorFlow fixes the number of devices once a process, hence one for each cell.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from benchmarks import cells
from benchmarks import serving
from benchmarks import workloads
import tensorflow as tf

from tf_cdops.base import tf_compat
from tf_cdops.cli import loads
from tf_cdops.cli import output
from tf_cdops.cli.measuring import comparison
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import results
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing

# One that takes longer isn't built twice: it won't be the quickest.
_BUILD_ONCE_SECONDS = 3.0
_MOST_TIMES = 8  # More rounds than that tell nothing new.
_TINY = "2x1k,1x256k"


def measure(cell: dict[str, Any], rounds: int,
            seconds: float = 0.0) -> dict[str, Any]:
  """Measures ours and TensorFlow's four, and the floor, step by step.

  Args:
    cell: which, as a dict.
    rounds: at least so many steps of each.
    seconds: may go into more rounds. Quick steps vary most, and get many.

  Returns:
    A `cells.Measured`, as a dict.
  """
  wanted = cells.Cell(**cell)
  eager = wanted.mode == cells.EAGER
  tf.get_logger().setLevel("ERROR")
  sites.configure_cpus(wanted.devices)
  site = sites.local("CPU", wanted.devices)
  field = (contenders.of_spec("auto"), *contenders.of_tensorflow())
  _pay_for_first_use(field, site, eager)
  inputs = exact_inputs.make(site, workloads.named(wanted.load).sizes)
  compared = comparison.Comparison(inputs)
  notes = []
  for contender in field:
    try:
      compared.add(_build(contender, inputs, eager))
    except Exception as error:  # TensorFlow's own may raise anything.
      if contender.ours:
        raise
      notes.append(f"{contender.name} can't run: {output.brief(error)}")
  compared.add(steps.build_floor(inputs, eager))
  compared.add(steps.build_nothing(inputs, eager))
  took = timing.seconds_of(lambda: compared.run(rounds))
  more = min(_MOST_TIMES - 1, int(seconds / took)) * rounds
  if more:
    compared.run(more)
  return cells.Measured(wanted, tuple(map(_result, compared.results())),
                        tuple(notes)).to_dict()


def _pay_for_first_use(field: Sequence[contenders.Contender],
                       site: sites.Site, eager: bool) -> None:
  """Builds something tiny, so that no build pays for imports and caches."""
  tiny = exact_inputs.make(site, loads.parse_sizes(_TINY).sizes)
  for contender in field:
    steps.build(contender, tiny, eager).run()


def _build(contender: contenders.Contender, inputs: exact_inputs.Inputs,
           eager: bool) -> steps.Step:
  """Builds a step twice, and keeps the quicker time: noise only adds."""
  step = steps.build(contender, inputs, eager)
  if eager or step.build_seconds > _BUILD_ONCE_SECONDS:
    return step
  return dataclasses.replace(step, build_seconds=min(
      step.build_seconds, _seconds_to_build(contender, inputs)))


def _seconds_to_build(contender: contenders.Contender,
                      inputs: exact_inputs.Inputs) -> float:
  """Builds the all-reduce again, without making it ready to run."""
  strategy = inputs.site.strategy(contender.make_ops())
  seconds = 0.0

  @tf.function(autograph=False)
  def build() -> None:
    nonlocal seconds
    values = [tf_compat.PerReplica(row) for row in steps.read(inputs)]
    seconds = timing.seconds_of(lambda: strategy.extended.batch_reduce_to(
        tf.distribute.ReduceOp.SUM, [(value, value) for value in values]))

  build.get_concrete_function()
  return seconds


def _result(result: results.Result) -> cells.Result:
  others = {steps.FLOOR: cells.FLOOR, steps.NOTHING: cells.NOTHING}
  family = (cells.OURS if result.ours else
            others.get(result.contender, cells.TENSORFLOW))
  return cells.Result(
      contender=result.contender, family=family,
      **dataclasses.asdict(result.time), wrong=result.wrong,
      build_seconds=result.build_seconds, nodes=result.nodes)


if __name__ == "__main__":
  serving.serve({"measure": measure})
