"""A process that is one worker of a strategy of one program a worker.

TensorFlow's own, or SpmdStrategy. Its address and number come in the
environment variable TF_CONFIG, as they would on a real cluster.
"""

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import cells
from benchmarks import serving
from benchmarks import training_step
from benchmarks import workloads
import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops import cross_device_ops
from tf_cdops import registry
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import timing
from tf_cdops.planning import planner

_NAME = "MultiWorkerMirroredStrategy, ring"

_runs: dict[str, Callable[[], None]] = {}
_place: dict[str, Any] = {}
# What each contender reduces with, and by how much a sum may be wrong.
_contenders: dict[str, tuple[Any, float]] = {}


def join(workers: int, rank: int, spmd: bool = False) -> dict[str, Any]:
  """Waits for the other workers."""
  tf.get_logger().setLevel("ERROR")
  ring = tf.distribute.experimental.CommunicationImplementation.RING
  options = tf.distribute.experimental.CommunicationOptions(
      implementation=ring)
  kind = (tf_cdops.SpmdStrategy if spmd
          else tf.distribute.MultiWorkerMirroredStrategy)
  strategy = kind(communication_options=options)
  _place.update(workers=workers, rank=rank, strategy=strategy)
  own = strategy.extended._cross_device_ops
  _contenders[cells.SPMD if spmd else _NAME] = own, 0.0
  if spmd:  # A program has one strategy. Another's would reduce with this.
    wire = registry.check_wire("bfloat16")
    _contenders[cells.SPMD_HALF] = cross_device_ops.SpmdAllReduce(
        strategy.extended.worker_devices, workers, wire=wire,
        spec=planner.parse_all_reduce_spec("auto")), wire.codec.unit
  return {}


def build(load: str, shapes: Any) -> dict[str, Any]:
  """Builds the step and checks its results."""
  del shapes  # The load has them.
  _runs.clear()
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

  def step() -> tf.Tensor:
    results = strategy.run(reduce)
    return tf.math.add_n([tf.reshape(result, [-1])[0] for result in results])

  built = []
  for name, error in _each():
    _add(name, tf.function(step, autograph=False))
    results = tf.function(lambda: strategy.run(reduce), autograph=False)()
    wrong = sum(_wrong(result.numpy(), inputs.expected(tensor), error)
                for tensor, result in enumerate(results))
    built.append({"contender": name, "wrong": wrong})
    del results
    serving.return_memory()
  return {"contenders": built}


def build_training(batch: int) -> dict[str, Any]:
  """Builds steps of training, and the same with no all-reduce."""
  _runs.clear()
  training = training_step.Training(batch, _place["workers"], _place["rank"])
  strategy, built = _place["strategy"], []
  for name, error in _each():
    reduced = tf.function(lambda: strategy.run(training.mean_gradients),
                          autograph=False)()
    built.append({"contender": name, "wrong": training.wrong(reduced, error)})
    _add(name, tf.function(lambda: strategy.run(training.step),
                           autograph=False))
  alone = f"{next(iter(_contenders))}, {cells.NOTHING}"
  built.append({"contender": alone, "wrong": 0})
  _add(alone, tf.function(lambda: strategy.run(training.step_alone),
                          autograph=False))
  return {"contenders": built}


def _each() -> Iterator[tuple[str, float]]:
  """Yields contenders, the strategy being each one's meanwhile."""
  for name, (ops, error) in _contenders.items():
    _place["strategy"].extended._cross_device_ops = ops
    yield name, error


def _add(name: str, function: Callable[[], tf.Tensor]) -> None:
  function().numpy()
  _runs[name] = lambda: function().numpy()


def _wrong(result: Any, expected: Any, error: float) -> int:
  """Returns how many elements are further off than a part of the sum."""
  return int(np.count_nonzero(np.abs(result - expected) > error * expected))


def step(contender: str) -> dict[str, Any]:
  return {"seconds": timing.seconds_of(_runs[contender])}


if __name__ == "__main__":
  serving.serve({"join": join, "build": build, "step": step,
                 "build_training": build_training})
