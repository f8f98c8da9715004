"""What each worker runs in the tests of SpmdStrategy; asserts what it can.

    tf_cdops launch --workers=2 tests/spmd_program.py FOLDER PART [ARGUMENTS]

It writes what others are to be compared with into FOLDER, one file a worker.
"""

import json
import pathlib
import sys
import time

import numpy as np
import tensorflow as tf

import tf_cdops
from tests import keras_models
from tests import spmd_model
from tf_cdops import cross_device_ops
from tf_cdops import registry
from tf_cdops.planning import planner

_SHAPES = ((3, 4), (1001,), (0,), ())
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32",
           "complex64")
_SPECS = ("auto", "xring", "ps/ps", "xring/ps#3", "collective",
          "ps/collective#3", "hierarchical_copy:1k:rechd/ps")


class Program:
  """One worker's."""

  def __init__(self, folder: str, **arguments):
    self.strategy = tf_cdops.SpmdStrategy(**arguments)
    self.replicas = self.strategy.num_replicas_in_sync
    self.rank = self.strategy.cluster_resolver.task_id
    self.folder = pathlib.Path(folder)

  def write(self, **content) -> None:
    (self.folder / f"{self.rank}.json").write_text(json.dumps(content))

  def distributed(self, values):
    """Returns one value per replica, of which this program has its own."""
    return self.strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group]))

  def local(self, value):
    return [one.numpy() if tf.is_tensor(one) else one
            for one in self.strategy.experimental_local_results(value)]

  def values(self, shape, dtype):
    """Whole numbers, so that sums are exact; each replica's differ."""
    rng = np.random.default_rng(len(shape) + 1)
    dtype = tf.as_dtype(dtype).as_numpy_dtype
    return [rng.integers(-9, 9, shape).astype(dtype)
            for _ in range(self.replicas)]


def check_sums(program: Program) -> None:
  """All specs, dtypes and shapes; in a function, in a loop and eagerly."""
  strategy = program.strategy
  kinds = [(shape, dtype) for shape in _SHAPES for dtype in _DTYPES]
  values = [program.values(*kind) for kind in kinds]
  inputs = tuple(map(program.distributed, values))
  total = [np.sum(np.stack(one).astype(
      "complex128" if "complex" in kind[1] else "float64"), axis=0)
           for one, kind in zip(values, kinds, strict=True)]
  mine = strategy.extended._cross_device_ops

  def reduce(*tensors):
    return tf.distribute.get_replica_context().all_reduce("SUM", list(tensors))

  def check(results, expected):
    for result, want in zip(results, expected, strict=True):
      for local in program.local(result):
        np.testing.assert_array_equal(local.astype(want.dtype), want)

  for spec in _SPECS:
    strategy.extended._cross_device_ops = cross_device_ops.SpmdAllReduce(
        strategy.extended.worker_devices, len(mine.topology.workers),
        spec=planner.parse_all_reduce_spec(spec), bytes_per_pack=5000)
    check(tf.function(lambda: strategy.run(reduce, inputs),
                      autograph=False)(), total)
  strategy.extended._cross_device_ops = mine
  check(strategy.run(reduce, inputs), total)  # Eagerly.

  @tf.function
  def loop():
    kept = tf.zeros([1001])
    for _ in tf.range(3):
      kept += strategy.experimental_local_results(
          strategy.run(reduce, (inputs[7],))[0])[0]
    return kept

  np.testing.assert_array_equal(loop(), 3 * total[7])


def check_unknown_shapes(program: Program) -> None:
  """A function that is traced once for tensors of any length."""
  strategy = program.strategy

  @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
  def summed(length):
    def reduce():
      vector = tf.ones([length, 2])
      return tf.distribute.get_replica_context().all_reduce("MEAN", vector)
    return strategy.experimental_local_results(strategy.run(reduce))

  for length in (3, 0, 1000, 3, 17):
    for result in summed(length):
      np.testing.assert_array_equal(result, np.ones([length, 2]))


def check_reductions(program: Program) -> None:
  """Strategy.reduce of structures and scalars, gather and all_gather."""
  strategy, replicas = program.strategy, program.replicas
  scalar = program.distributed([np.float32(r) for r in range(replicas)])
  rows = program.distributed([np.full([2, 3], r + 1.0) for r in
                              range(replicas)])
  mean = strategy.reduce("MEAN", {"a": scalar, "b": [scalar]}, axis=0)
  assert float(mean["a"]) == float(mean["b"][0]) == (replicas - 1) / 2
  summed = strategy.reduce(tf.distribute.ReduceOp.SUM, rows, axis=0)
  np.testing.assert_array_equal(
      summed, np.full([3], replicas * (replicas + 1.0)))
  for dtype in ("float32", "bool", "bfloat16", "complex64", "uint8"):
    pieces = [np.full([r, 2], r % 2).astype(tf.as_dtype(dtype).as_numpy_dtype)
              for r in range(replicas)]
    for axis in (0, -1):
      turned = [piece if axis == 0 else piece.T for piece in pieces]
      np.testing.assert_array_equal(
          strategy.gather(program.distributed(turned), axis),
          np.concatenate(turned, axis))

  def gathered(value):
    return tf.distribute.get_replica_context().all_gather(value, 0)

  uneven = [np.full([r + 1], r) for r in range(replicas)]
  for result in program.local(tf.function(
      lambda value: strategy.run(gathered, (value,)))(
          program.distributed(uneven))):
    np.testing.assert_array_equal(result, np.concatenate(uneven))


def check_sparse(program: Program) -> None:
  """IndexedSlices of other lengths in each replica, gathered or made dense."""
  strategy, replicas = program.strategy, program.replicas
  mine = strategy.extended._cross_device_ops

  def reduce(values):
    slices = tf.IndexedSlices(values, 2 * tf.range(tf.shape(values)[0]),
                              tf.constant([2 * replicas, 2]))
    return tf.distribute.get_replica_context().all_reduce("SUM", slices)

  pieces = [np.full([r + 1, 2], r + 1.0, "float32") for r in range(replicas)]
  expected = np.zeros([2 * replicas, 2])
  for piece in pieces:
    expected[:2 * len(piece):2] += piece
  for mode in ("gather", "deduplicate", "dense"):
    strategy.extended._cross_device_ops = cross_device_ops.SpmdAllReduce(
        strategy.extended.worker_devices, len(mine.topology.workers),
        spec=planner.parse_all_reduce_spec("auto"), sparse=mode)
    for result in strategy.experimental_local_results(tf.function(
        lambda value: strategy.run(reduce, (value,)))(
            program.distributed(pieces))):
      np.testing.assert_array_equal(tf.convert_to_tensor(result), expected)
  strategy.extended._cross_device_ops = mine


def check_wires(program: Program) -> dict[str, list[str]]:
  """Each wire within its bound; returns the bits of each result."""
  strategy, replicas = program.strategy, program.replicas
  rng = np.random.default_rng(0)
  scales = np.exp(rng.uniform(-3, 6, [5001])).astype("float32")
  values = [(rng.normal(size=[5001]) * scales).astype("float32")
            for _ in range(replicas)]
  value = program.distributed(values)
  mine = strategy.extended._cross_device_ops
  workers = len(mine.topology.workers)
  bits = {}

  def reduce(tensor):
    # Whole numbers of another dtype travel as they are.
    return tf.distribute.get_replica_context().all_reduce(
        "SUM", [tensor, tf.ones([3], tf.int64)])

  for name in ("bfloat16", "float16", "int8"):
    wire = registry.check_wire(name)
    strategy.extended._cross_device_ops = cross_device_ops.SpmdAllReduce(
        strategy.extended.worker_devices, workers, wire=wire,
        spec=planner.parse_all_reduce_spec("auto"))
    rounded, whole = tf.function(
        lambda: strategy.run(reduce, (value,)), autograph=False)()
    results = program.local(rounded)
    # Inside a worker nothing is rounded but as float32 is.
    sums = np.stack(values).astype("float64")
    largest = np.abs(sums).sum(0)
    if name == "int8":  # Of each 1,024 numbers, wherever they begin.
      largest = largest.max()
    unit = wire.codec.unit + 1e-6
    for result, count in zip(results, program.local(whole), strict=True):
      error = np.abs(result - sums.sum(0))
      assert np.all(error <= ((1 + unit)**2 - 1) * largest + 1e-6), (
          name, error.max())
      assert error.max() > 0, f"{name} rounded nothing"
      np.testing.assert_array_equal(count, [replicas] * 3)
    bits[name] = [result.tobytes().hex() for result in results]
  strategy.extended._cross_device_ops = mine
  return bits


def check_all(folder: str) -> None:
  """Everything that needs no model, and the model without further ado."""
  program = Program(folder)
  assert isinstance(program.strategy,
                    tf.distribute.MultiWorkerMirroredStrategy)
  check_sums(program)
  check_unknown_shapes(program)
  check_reductions(program)
  check_sparse(program)
  bits = check_wires(program) if len(
      program.strategy.extended._cross_device_ops.topology.workers) > 1 else {}
  program.write(bits=bits, fitted=spmd_model.train(program.strategy))


def keras(folder: str) -> None:
  """More of what Keras does."""
  program = Program(folder)
  program.write(
      fitted=spmd_model.train(program.strategy),
      more=spmd_model.train_otherwise(program.strategy,
                                      program.folder / str(program.rank)))


def refuse(folder: str) -> None:
  """Programs that aren't alike."""
  task = json.loads(__import__("os").environ["TF_CONFIG"])["task"]["index"]
  Program(folder, bytes_per_pack=1000 + task)


def mended(folder: str) -> None:
  """What Keras can't do, and tf_cdops.keras can."""
  program = Program(folder)
  program.write(mended=keras_models.train_mended(
      program.strategy, program.folder / str(program.rank)))
  with np.testing.assert_raises_regex(
      ValueError, r"`value` must have the same shape in all programs, and has "
      r"\(1,\); \(2,\), in their order; pad .*strategy.gather"):
    program.strategy.reduce("SUM", tf.ones([program.rank + 1]), axis=None)


def resume(folder: str, at: str) -> None:
  """Kills itself, on worker 1, once, after so many epochs."""
  restart = __import__("os").environ.get("TF_CDOPS_RESTART", "0")
  program = Program(folder)
  program.write(fitted=spmd_model.train_and_die(
      program.strategy, program.folder / "backup",
      int(at) if restart == "0" and program.rank == 1 else None))


def stuck(folder: str) -> None:
  """Worker 1 is stuck between two steps, in its input say."""
  program = Program(folder, timeout=8.0)

  @tf.function
  def step():
    return program.strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce(
            "SUM", tf.ones([3])))

  for number in range(4):
    if number == 3 and program.rank == 1:
      time.sleep(600)
    step()
    time.sleep(1.0 + 9.0 * (number == 1))  # A pause isn't a step.


def steps(folder: str) -> None:
  """One step after the other, until something happens."""
  program = Program(folder)

  @tf.function
  def step():
    return program.strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce(
            "SUM", tf.ones([3])))

  step()
  print("at work", flush=True)
  while True:
    step()


def other_shapes(folder: str) -> None:
  """Programs whose function reduces tensors of different shapes."""
  program = Program(folder, timeout=8.0)

  @tf.function
  def step(value):
    return program.strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce("SUM", value))

  step(tf.ones([3]))
  step(tf.ones([3 + program.rank]))


def stuck_in_input(folder: str) -> None:
  """The last worker's data end to come inside a step, as Keras makes them."""
  program = Program(folder, timeout=8.0)
  last = int(program.rank == program.replicas - 1)
  x, y = spmd_model.data(8)

  def batches():
    for number in range(100):
      if number == 6 and last:
        time.sleep(600)
      yield x, y

  options = tf.data.Options()
  options.experimental_distribute.auto_shard_policy = (
      tf.data.experimental.AutoShardPolicy.OFF)
  made = spmd_model.model(program.strategy, steps_per_execution=2)
  made.fit(tf.data.Dataset.from_generator(batches, output_signature=(
      tf.TensorSpec(x.shape), tf.TensorSpec(y.shape, tf.int64))).with_options(
          options), steps_per_epoch=30, verbose=0, shuffle=False)


if __name__ == "__main__":
  _, _folder, _part, *_arguments = sys.argv
  globals()[_part](_folder, *_arguments)
