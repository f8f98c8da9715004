"""Runs every spec for many steps, and tells what grew meanwhile.

    python -m tests.long_run --mode=function --steps=5000
    python -m tests.long_run --mode=faults --on_nonfinite=drop --specs=auto

A program, since threads and memory belong to a process. It prints a line of
JSON for each spec: by how much the threads, file handles and memory of each
process grew from the first steps to the last. Ends with 1 if anything grew that
shouldn't.
"""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from absl import app
from absl import flags

from tf_cdops.cluster import isolation

if "--mode=workers" in sys.argv:
  isolation.enter_private_network()  # Before TensorFlow has any thread.

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops import registry
from tf_cdops.base import tf_compat
from tf_cdops.execution import executor
from tf_cdops.registry import requirements

_STEPS = flags.DEFINE_integer("steps", 5000, "Steps of each algorithm.")
_PAIR_STEPS = flags.DEFINE_integer("pair_steps", None,
                                   "Steps of each pair; None for as many.")
_SPECS = flags.DEFINE_list("specs", None, "Only these; None for all.")
_GUARD = flags.DEFINE_enum("on_nonfinite", None, ["raise", "drop"],
                           "Of the classes.")

_FALLBACK = "nccl's fallback"  # NcclAllReduce where NCCL can't run.
_WARM_UP = 30
_SHAPES = ([3], [40, 5])
# TensorFlow's pools start a thread now and then; a leak starts thousands.
_LIMITS = {"threads": 12, "handles": 8, "bytes": 20 << 20}

# Runs one step, which raises unless its sums are right.
Step = Callable[[], None]


def usage(pid: int) -> dict[str, int]:
  """Returns what a process holds; Linux tells."""
  with open(f"/proc/{pid}/statm", encoding="ascii") as file:
    pages = int(file.read().split()[1])
  return {"threads": len(os.listdir(f"/proc/{pid}/task")),
          "handles": len(os.listdir(f"/proc/{pid}/fd")),
          "bytes": pages * os.sysconf("SC_PAGE_SIZE")}


def specs(topology: tf_cdops.Topology) -> list[str]:
  """Returns what runs on these devices: all algorithms, and all pairs."""
  names = [a.name for a in tf_cdops.all_reduce_algorithms()]
  names += [f"{intra}/{inter}" for intra in names for inter in names]
  here = executor.machine()
  return ["auto", _FALLBACK, *(name for name in names if not (
      requirements.unmet(registry.lookup(name), topology, here)))]


def make_ops(spec: str, topology: tf_cdops.Topology) -> Any:
  if spec == _FALLBACK:
    return tf_cdops.NcclAllReduce(on_nonfinite=_GUARD.value)
  return tf_cdops.MultiWorkerAllReduce(
      all_reduce_spec=spec, topology=topology, on_nonfinite=_GUARD.value)


def right_sums(ops: Any, topology: tf_cdops.Topology) -> tf.Tensor:
  """Sums 1 on the first device, 2 on the next and so on; True if all are right.

  Each result is looked at on its own device. For a tensor that leaves a worker
  as the result of a function TensorFlow keeps 2 KB there for ever.
  """
  values = []
  for shape in _SHAPES:
    placed = []
    for i, name in enumerate(topology.devices):
      with tf.device(name):
        placed.append(tf.fill(shape, tf.constant(i + 1.0)))
    values.append(tf_compat.PerReplica(tuple(placed)))
  totals = ops.batch_reduce(
      tf.distribute.ReduceOp.SUM, [(value, value) for value in values])
  count, right = len(topology.devices), []
  for device, results in zip(topology.devices, zip(
      *(total.values for total in totals), strict=True), strict=True):
    with tf.device(device):
      right += [tf.reduce_all(tf.equal(result, count * (count + 1) / 2))
                for result in results]
  with tf.device("/job:localhost/replica:0/task:0/device:CPU:0"):
    return tf.reduce_all(tf.stack(right))


def check(right: Any) -> None:
  assert right, "a sum is wrong"


@contextlib.contextmanager
def in_function(spec: str, topology: tf_cdops.Topology) -> Iterator[Step]:
  ops = make_ops(spec, topology)
  step = tf.function(lambda: right_sums(ops, topology), autograph=False)
  yield lambda: check(step())


@contextlib.contextmanager
def in_eager(spec: str, topology: tf_cdops.Topology) -> Iterator[Step]:
  ops = make_ops(spec, topology)
  yield lambda: check(right_sums(ops, topology))


@contextlib.contextmanager
def in_session(spec: str, topology: tf_cdops.Topology) -> Iterator[Step]:
  with tf.Graph().as_default():
    right = right_sums(make_ops(spec, topology), topology)
    with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(
        device_count={"CPU": len(topology.devices)})) as session:
      yield lambda: check(session.run(right))


@contextlib.contextmanager
def in_keras(spec: str, topology: tf_cdops.Topology) -> Iterator[Step]:
  strategy = tf.distribute.MirroredStrategy(
      list(topology.devices), cross_device_ops=make_ops(spec, topology))
  with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((4,)), tf.keras.layers.Dense(8),
        tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
  x, y = np.ones([16, 4], "float32"), np.ones([16, 1], "float32")

  def step() -> None:
    assert np.isfinite(model.train_on_batch(x, y))

  yield step


def guarded_step(strategy: Any, optimizer: Any) -> Callable[[bool], None]:
  """Trains, and compares replicas; one's numbers may be spoilt."""
  weight = tf.Variable(tf.zeros([4, 1]))
  optimizer.build([weight])
  compare = tf_cdops.ReplicaCheck()

  def replica(is_bad: tf.Tensor) -> None:
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    y = tf.where(is_bad & tf.equal(number, 2), np.inf, 1.0)
    with tf.GradientTape() as tape:
      loss = optimizer.scale_loss(
          tf.reduce_mean((tf.ones([2, 4]) @ weight - y)**2))
    optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

  step = tf.function(lambda is_bad: strategy.run(replica, (is_bad,)),
                     autograph=False)

  def run(is_bad: bool) -> None:
    try:
      step(tf.constant(is_bad))
    except tf.errors.InvalidArgumentError as error:
      if "on_nonfinite=raise: replica 2" not in str(error):
        raise
    # A step that raises may have been counted already, by some replicas.
    compare([weight, *(variable for variable in optimizer.variables
                       if variable is not optimizer.iterations)])
    assert np.isfinite(weight.numpy()).all()

  return run


@contextlib.contextmanager
def in_faults(spec: str, topology: tf_cdops.Topology) -> Iterator[Step]:
  """Trains with all that guards; every third step is bad."""
  strategy = tf.distribute.MirroredStrategy(
      list(topology.devices), cross_device_ops=make_ops(spec, topology))
  ours, sgd = tf_cdops.keras, tf.keras.optimizers.SGD
  with strategy.scope():
    steps = [guarded_step(strategy, optimizer) for optimizer in (
        *([sgd(0.01)] if _GUARD.value else []),
        ours.SkipNonFinite("adam"),
        ours.LossScaleOptimizer(
            ours.ExponentialMovingAverage(ours.GradientAccumulation(
                sgd(0.01, use_ema=True, ema_overwrite_frequency=2), 3)),
            dynamic_growth_steps=2))]
  bad = itertools.cycle((False, True, False))

  def step() -> None:
    is_bad = next(bad)
    for one in steps:
      one(is_bad)

  yield step


@contextlib.contextmanager
def local_devices() -> Iterator[tuple[tf_cdops.Topology, dict[str, int]]]:
  """Four devices here, as two virtual workers; and the processes to watch."""
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * 4)
  names = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(4)]
  yield tf_cdops.Topology.from_devices(
      names, workers=[names[:2], names[2:]]), {"process": os.getpid()}


@contextlib.contextmanager
def workers_devices() -> Iterator[tuple[tf_cdops.Topology, dict[str, int]]]:
  """Two real workers of two devices."""
  with tf_cdops.LocalCluster(2, 2) as cluster:
    strategy = tf_cdops.multi_worker_strategy(cluster)
    pids = {f"worker {task}": cluster.pid(task) for task in range(2)}
    yield (tf_cdops.Topology.from_devices(strategy.extended.worker_devices),
           {"client": os.getpid()} | pids)


_MODES = {"function": (local_devices, in_function),
          "eager": (local_devices, in_eager),
          "session": (local_devices, in_session),
          "keras": (local_devices, in_keras),
          "faults": (local_devices, in_faults),
          "workers": (workers_devices, in_function)}
_MODE = flags.DEFINE_enum("mode", None, list(_MODES), "How steps are run.",
                          required=True)


def grown(step: Step, steps: int, pids: dict[str, int]
          ) -> dict[str, dict[str, int]]:
  """Returns by how much each process grew in so many steps."""
  for _ in range(_WARM_UP):
    step()
  before = {name: usage(pid) for name, pid in pids.items()}
  for _ in range(steps):
    step()
  return {name: {what: count - before[name][what]
                 for what, count in usage(pid).items()}
          for name, pid in pids.items()}


def main(argv: list[str]) -> None:
  del argv
  tf.get_logger().setLevel("ERROR")  # It warns of so many tf.functions.
  devices, steps_of = _MODES[_MODE.value]
  failed = False
  with devices() as (topology, pids):
    for spec in _SPECS.value or specs(topology):
      steps = _STEPS.value
      if "/" in spec and _PAIR_STEPS.value is not None:
        steps = _PAIR_STEPS.value
      with steps_of(spec, topology) as step:
        growth = grown(step, steps, pids)
      flat = all(growth[name][what] <= limit for name in growth
                 for what, limit in _LIMITS.items())
      failed |= not flat
      print(json.dumps({"spec": spec, "steps": steps, "flat": flat,
                        "growth": growth}), flush=True)
  sys.exit(failed)


if __name__ == "__main__":
  app.run(main)
