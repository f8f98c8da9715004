"""Builds what is timed: a step that all-reduces a batch once, and is used."""

import collections
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cdops.base import tf_compat
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import tolerances

FLOOR = "floor: one AddN"
NOTHING = "nothing: read and use alone"

# For each tensor, every device's value.
_Values = list[tuple[tf.Tensor, ...]]
_Reduce = Callable[[_Values], _Values]


@dataclasses.dataclass(frozen=True)
class Step:
  """A contender on certain inputs, ready to run.

  Attributes:
    name: the contender's.
    ours: whether a wrong result is a fault of this package.
    run: all-reduces once, and returns when that is done.
    results: returns, for each tensor, every device's result.
    build_seconds: what building the all-reduce took; 0 in eager code.
    nodes: how many nodes it has; 0 in eager code.
    tolerance: how far results may be from the exact sum; None for not at all.
    strategy: what it reduces with; None for the floor.
  """

  name: str
  ours: bool
  run: Callable[[], None]
  results: Callable[[], _Values]
  build_seconds: float = 0.0
  nodes: int = 0
  tolerance: tolerances.Tolerance | None = None
  strategy: Any = None


def build(contender: contenders.Contender, inputs: exact_inputs.Inputs,
          eager: bool = False) -> Step:
  """Builds a contender's step.

  Args:
    contender: how to all-reduce.
    inputs: what, and where.
    eager: without a tf.function.

  Returns:
    The step; if it has a graph, that is built and has run once.
  """
  strategy = inputs.site.strategy(contender.make_ops())

  def reduce(values: _Values) -> _Values:
    distributed = [tf_compat.PerReplica(row) for row in values]
    results = strategy.extended.batch_reduce_to(
        tf.distribute.ReduceOp.SUM, [(value, value) for value in distributed])
    return [strategy.experimental_local_results(result) for result in results]

  make = _eager_step if eager else _graph_step
  step = dataclasses.replace(
      make(contender.name, contender.ours, reduce, inputs), strategy=strategy)
  if contender.plan is None:
    return step
  topology = inputs.site.topology
  return dataclasses.replace(step, tolerance=tolerances.of_plan(
      contender.plan(inputs.sizes, topology), topology))


def build_floor(inputs: exact_inputs.Inputs, eager: bool = False) -> Step:
  """Builds a step that adds the same bytes up in one place and no more.

  What a simple program would do. An all-reduce that spreads its sums over the
  devices can be quicker: TensorFlow slows large sums down where it expects a
  device to run out of memory.
  """
  home = inputs.site.devices[0]

  def add(values: _Values) -> _Values:
    with tf.device(home):
      return [(tf.math.add_n(row),) for row in values]

  make = _eager_step if eager else _graph_step
  return make(FLOOR, False, add, inputs)


def build_nothing(inputs: exact_inputs.Inputs, eager: bool = False) -> Step:
  """Builds a step that only reads the inputs and uses them, summing nothing.

  It is part of every other step's time.
  """
  make = _eager_step if eager else _graph_step
  step = make(NOTHING, False, lambda values: values, inputs)
  return dataclasses.replace(step, results=lambda: [])  # There are no sums.


def count_wrong(step: Step, inputs: exact_inputs.Inputs) -> int:
  """Returns how many elements, of all results on all devices, are wrong.

  With a wire those are the ones beyond its bound, and those of which replicas
  have different bits.
  """
  wrong = 0
  for tensor, results in enumerate(step.results()):
    expected = inputs.expected(tensor)
    first = results[0].numpy()
    for result in results:
      actual = result.numpy()
      if actual.shape != expected.shape:
        wrong += expected.size
      elif step.tolerance is None:
        wrong += int(np.count_nonzero(actual != expected))
      else:
        wrong += int(np.count_nonzero(
            (actual != first)
            | ~step.tolerance.holds(actual, expected, inputs.largest_sum)))
  return wrong


def _eager_step(name: str, ours: bool, reduce: _Reduce,
                inputs: exact_inputs.Inputs) -> Step:
  values = read(inputs)
  runs_ahead = inputs.site.topology.device_types != {"CPU"}

  def run() -> None:
    reduce(values)
    if runs_ahead:
      tf.test.experimental.sync_devices()

  return Step(name, ours, run, lambda: reduce(values))


def _graph_step(name: str, ours: bool, reduce: _Reduce,
                inputs: exact_inputs.Inputs) -> Step:
  seconds, nodes = 0.0, 0

  @tf.function(autograph=False)
  def step() -> tf.Tensor:
    nonlocal seconds, nodes
    values = read(inputs)
    graph = tf.compat.v1.get_default_graph()
    started, before = time.perf_counter(), len(graph.get_operations())
    results = reduce(values)
    seconds = time.perf_counter() - started
    nodes = len(graph.get_operations()) - before
    return _use(results, inputs.site.devices)

  step().numpy()
  return Step(name, ours, lambda: step().numpy(),
              tf.function(lambda: reduce(read(inputs)), autograph=False),
              seconds, nodes)


def read(inputs: exact_inputs.Inputs) -> _Values:
  """Reads the variables, each by one op that says on which device it is.

  An all-reduce goes by that. Of tf.Variable's methods, `value` drops the
  device, and `read_value` adds a copy.
  """
  values = []
  for row in inputs.variables:
    read = []
    for variable in row:
      with tf.device(variable.device):
        read.append(tf.raw_ops.ReadVariableOp(resource=variable.handle,
                                              dtype=variable.dtype))
    values.append(tuple(read))
  return values


def _use(results: _Values, devices: Sequence[str]) -> tf.Tensor:
  """Returns a number that depends on every result.

  TensorFlow leaves out what nobody uses, and would measure as nothing. One
  slice a result is all that this adds: it is built, and runs, with the rest.
  """
  sums = []
  for name, values in zip(devices, zip(*results, strict=True), strict=False):
    alike = collections.defaultdict(list)
    for value in values:
      alike[value.shape.rank, value.dtype].append(value)
    with tf.device(name):
      for (rank, _), members in alike.items():
        begin, size = tf.zeros([rank], tf.int32), tf.ones([rank], tf.int32)
        firsts = [tf.raw_ops.Slice(input=value, begin=begin, size=size)
                  for value in members]
        sums.append(tf.cast(tf.reshape(tf.math.add_n(firsts), []), tf.float32))
  with tf.device(devices[0]):
    return tf.math.add_n(sums)
