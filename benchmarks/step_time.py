"""Times one all-reduce of a model's gradients, ours beside TensorFlow's own.

    python benchmarks/step_time.py --devices=4 --load=resnet

All contenders run in one process, their steps interleaved, and every result is
used, lest TensorFlow leave the work out. Times of two runs can't be compared;
the ratios within one can.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics
import sys
import time

from absl import app
from absl import flags
import rich.console
import rich.progress
import rich.table
import tensorflow as tf

import tf_cdops

# Shapes of gradients: "resnet" is 214 tensors, 106 MB, much like ResNet-50.
_LOADS = {
    "resnet": [[64]] * 106 + [[1, 1, 256, 64]] * 30 + [[3, 3, 128, 128]] * 30
              + [[1, 1, 512, 1024]] * 30 + [[1, 1, 1024, 216]] * 17
              + [[2048, 1000]],
    "small": [[256]] * 500,
    "big": [[2048, 2048]] * 4,
}
_DEVICES = flags.DEFINE_integer("devices", 4, "Logical CPU devices.", 2, 16)
_LOAD = flags.DEFINE_enum("load", "resnet", sorted(_LOADS), "What to reduce.")
_SPEC = flags.DEFINE_string("all_reduce_spec", "auto", "What to measure.")
_STEPS = flags.DEFINE_integer("steps", 20, "Steps of each contender.", 1)


def contenders():
  return {
      f"tf_cdops, {_SPEC.value}": tf_cdops.MultiWorkerAllReduce(
          all_reduce_spec=_SPEC.value),
      "TF ReductionToOneDevice": tf.distribute.ReductionToOneDevice(),
      "TF HierarchicalCopy, 0 packs":
          tf.distribute.HierarchicalCopyAllReduce(0),
      "TF HierarchicalCopy, 1 pack": tf.distribute.HierarchicalCopyAllReduce(1),
      "TF default (collective ring)": None,
  }


def build(ops, devices, shapes):
  """Returns a function that reduces once, and what was seen of its building.

  That is the seconds, the nodes, and whether the sum is right: TensorFlow's
  HierarchicalCopyAllReduce loses a replica where their number is odd.
  """
  strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=ops)
  with strategy.scope():
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]
  measured = {}

  @tf.function
  def step():
    values = strategy.run(lambda: [v.read_value() for v in variables])
    graph = tf.compat.v1.get_default_graph()
    started, nodes = time.perf_counter(), len(graph.get_operations())
    results = strategy.extended.batch_reduce_to(
        tf.distribute.ReduceOp.SUM, [(v, v) for v in values])
    measured["seconds"] = time.perf_counter() - started
    measured["nodes"] = len(graph.get_operations()) - nodes
    used = []
    for result in results:
      for value in strategy.experimental_local_results(result):
        with tf.device(value.device):
          used.append(tf.reshape(value, [-1])[0])
    return tf.add_n(used)

  right = float(step()) == len(devices) ** 2 * len(shapes)
  return step, measured["seconds"], measured["nodes"], right


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"unknown arguments: {argv[1:]}")
  tf.get_logger().setLevel("ERROR")
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * _DEVICES.value)
  devices = [f"CPU:{i}" for i in range(_DEVICES.value)]
  shapes = _LOADS[_LOAD.value]
  steps, times, built = {}, {}, {}
  console = rich.console.Console(stderr=True)
  with rich.progress.Progress(console=console, transient=True,
                              disable=not sys.stderr.isatty()) as progress:
    names = contenders()
    for name, ops in progress.track(names.items(), description="building"):
      steps[name], *built[name] = build(ops, devices, shapes)
      times[name] = []
    for _ in progress.track(range(_STEPS.value), description="measuring"):
      for name, step in steps.items():
        started = time.perf_counter()
        step().numpy()
        times[name].append(time.perf_counter() - started)
  medians = {name: statistics.median(t) for name, t in times.items()}
  best = min(list(medians.values())[1:])
  table = rich.table.Table(
      title=f"{_LOAD.value}, {len(shapes)} tensors, {_DEVICES.value} devices")
  for column in ("", "median ms", "ratio to TF's best", "build s", "nodes",
                 "right"):
    table.add_column(column, justify="right" if column else "left")
  for name, median in medians.items():
    seconds, nodes, right = built[name]
    table.add_row(name, f"{median * 1e3:.1f}", f"{median / best:.2f}",
                  f"{seconds:.2f}", str(nodes), "yes" if right else "NO")
  rich.console.Console(width=100).print(table)


if __name__ == "__main__":
  app.run(main)
