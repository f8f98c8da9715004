"""A process that counts nodes, and times builds and steps, as sizes grow."""

import dataclasses
import time
from typing import Any

from benchmarks import node_count
from benchmarks import serving
from benchmarks import workloads
import tensorflow as tf

from tf_cdops import explaining
from tf_cdops.base import topology as topology_lib
from tf_cdops.cli.measuring import comparison
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.execution import executor


@dataclasses.dataclass(frozen=True)
class Point:
  """One size.

  Attributes:
    spec: what was built.
    tensors: how many.
    devices: how many.
    nodes: counted in the graph.
    predicted: by `node_count`.
    build_seconds: of the all-reduce alone.
    median: seconds of a step.
    wrong: elements that weren't the exact sum.
  """

  spec: str
  tensors: int
  devices: int
  nodes: int
  predicted: int
  build_seconds: float
  median: float
  wrong: int


def measure(devices: int, tensors: int, specs: list[str],
            rounds: int) -> dict[str, Any]:
  """Returns a Point, as a dict, for each spec."""
  tf.get_logger().setLevel("ERROR")
  sites.configure_cpus(devices)
  site = sites.local("CPU", devices)
  tiny = exact_inputs.make(site, workloads.of_count(4).sizes)
  inputs = exact_inputs.make(site, workloads.of_count(tensors).sizes)
  points = []
  for spec in specs:
    contender = contenders.of_spec(spec)
    steps.build(contender, tiny).run()
    compared = comparison.Comparison(inputs)
    compared.add(steps.build(contender, inputs))
    compared.run(rounds)
    result, = compared.results()
    points.append(dataclasses.asdict(Point(
        spec, tensors, devices, result.nodes,
        node_count.predict(spec, inputs.sizes, devices),
        result.build_seconds, result.time.median, result.wrong)))
  return {"points": points}


def explain(workers: int, devices: int) -> dict[str, Any]:
  """Times `explain` for ResNet-50 on that many devices."""
  sizes = [(size.shape, size.dtype)
           for size in workloads.named("resnet").sizes]
  topology = topology_lib.Topology.grid(workers, devices)
  started = time.perf_counter()
  str(explaining.explain("auto", topology, sizes))
  return {"seconds": time.perf_counter() - started}


def crossing(spec: str, workers: int, devices: int) -> dict[str, Any]:
  """Counts what crosses between workers: in the graph, and as explained."""
  topology = topology_lib.Topology.grid(workers, devices, device_type="CPU")
  sizes = workloads.of_count(6).sizes
  explained = explaining.explain(spec, topology,
                               [(size.shape, size.dtype) for size in sizes])
  graph = tf.Graph()
  with graph.as_default():
    batch = [[] for _ in sizes]
    for name in topology.devices:
      with tf.device(name):
        for values, size in zip(batch, sizes, strict=True):
          values.append(tf.zeros(size.shape))
    executor.all_reduce(explained.plan, batch, topology,
                        tf.distribute.ReduceOp.SUM)
  return {"spec": spec, "workers": workers, "devices": devices,
          "explained": explained.total.across, "counted": _crossing(graph)}


def _crossing(graph: tf.Graph) -> int:
  """A tensor goes once to each device that wants it."""
  worker = lambda device: device.rpartition("/device:")[0]
  sent = {(tensor.name, op.device): tensor.shape.num_elements()
          * tensor.dtype.size
          for op in graph.get_operations() for tensor in op.inputs
          if worker(tensor.op.device) != worker(op.device)}
  return sum(sent.values())


if __name__ == "__main__":
  serving.serve({"measure": measure, "explain": explain,
                 "crossing": crossing})
