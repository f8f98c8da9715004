"""A process that drives a cluster of TensorFlow servers: ours, in one graph."""

import contextlib
from typing import Any

from benchmarks import cells
from benchmarks import serving
from benchmarks import workloads
import tensorflow as tf

from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing

_SPECS = ("auto", "xring", "rechd")

_open = contextlib.ExitStack()
_steps: dict[str, steps.Step] = {}


def build(load: str, workers: int) -> dict[str, Any]:
  """Starts the servers and builds every contender; says who there is."""
  tf.get_logger().setLevel("ERROR")
  site = _open.enter_context(sites.local_cluster(workers, 1))
  inputs = exact_inputs.make(site, workloads.named(load).sizes)
  # What a user of TensorFlow alone could do in one graph.
  one_device = contenders.Contender(
      "TF ReductionToOneDevice, in one graph", False,
      tf.distribute.ReductionToOneDevice)
  field = [steps.build(contender, inputs)
           for contender in (*map(contenders.of_spec, _SPECS), one_device)]
  nothing = steps.build_nothing(inputs)
  _steps.update((step.name, step) for step in (*field, nothing))
  return {"contenders": [{
      "contender": step.name, "family": _family(step),
      "wrong": steps.count_wrong(step, inputs),
      "build_seconds": step.build_seconds, "nodes": step.nodes}
                         for step in _steps.values()]}


def _family(step: steps.Step) -> str:
  if step.name == steps.NOTHING:
    return cells.NOTHING
  return cells.OURS if step.ours else cells.EXTRA


def step(contender: str) -> dict[str, Any]:
  return {"seconds": timing.seconds_of(_steps[contender].run)}


if __name__ == "__main__":
  serving.serve({"build": build, "step": step})
