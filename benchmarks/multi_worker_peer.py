"""A process that is one worker of a MultiWorkerMirroredStrategy.

Its address and number come in the environment variable TF_CONFIG, as they
would on a real cluster.
"""

from collections.abc import Callable
from typing import Any

from benchmarks import serving
from benchmarks import workloads
import numpy as np
import tensorflow as tf

from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import timing

_NAME = "MultiWorkerMirroredStrategy, ring"

_runs: dict[str, Callable[[], None]] = {}
_place: dict[str, Any] = {}


def join(workers: int, rank: int) -> dict[str, Any]:
  """Waits for the other workers."""
  tf.get_logger().setLevel("ERROR")
  ring = tf.distribute.experimental.CommunicationImplementation.RING
  _place.update(
      workers=workers, rank=rank,
      strategy=tf.distribute.MultiWorkerMirroredStrategy(
          communication_options=tf.distribute.experimental.CommunicationOptions(
              implementation=ring)))
  return {}


def build(load: str, shapes: Any) -> dict[str, Any]:
  """Builds the step and checks its results."""
  del shapes  # The load has them.
  strategy = _place["strategy"]
  # All replicas' sites are this device; the inputs are this worker's.
  inputs = exact_inputs.make(
      sites.Site(("CPU:0",) * _place["workers"]), workloads.named(load).sizes,
      [_place["rank"]])
  mine = [variable for variable, in inputs.variables]

  def reduce() -> list[tf.Tensor]:
    return tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.SUM, [variable.read_value()
                                     for variable in mine])

  @tf.function(autograph=False)
  def step() -> tf.Tensor:
    results = strategy.run(reduce)
    return tf.math.add_n([tf.reshape(result, [-1])[0] for result in results])

  step().numpy()
  _runs[_NAME] = lambda: step().numpy()
  results = tf.function(lambda: strategy.run(reduce), autograph=False)()
  wrong = sum(int(np.count_nonzero(result.numpy() != inputs.expected(tensor)))
              for tensor, result in enumerate(results))
  del results
  serving.return_memory()
  return {"contenders": [{"contender": _NAME, "wrong": wrong}]}


def step(contender: str) -> dict[str, Any]:
  return {"seconds": timing.seconds_of(_runs[contender])}


if __name__ == "__main__":
  serving.serve({"join": join, "build": build, "step": step})
