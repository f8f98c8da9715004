"""A net on each of a cluster's devices, and steps that train it."""

import time
from collections.abc import Callable
from typing import Any

from benchmarks import nets
import numpy as np
import tensorflow as tf

from tf_cdops import cluster as cluster_lib
from tf_cdops.base import topology as topology_lib
from tf_cdops.execution import executor
from tf_cdops.execution import inputs

_RATE = 1e-4


def seconds_of(run: Callable[[], None]) -> float:
  """Returns how long it takes."""
  started = time.perf_counter()
  run()
  return time.perf_counter() - started


class Replicas:
  """A net's replicas. Their variables aren't mirrored: each has its own."""

  def __init__(self, cluster: cluster_lib.LocalCluster, net: str, batch: int):
    self._cluster, self._net = cluster, nets.NETS[net]
    strategy = cluster_lib.multi_worker_strategy(cluster)
    self._devices = strategy.extended.worker_devices
    weights = self._net.weights()
    self._weights, self._data = [], []
    for rank, device in enumerate(self._devices):
      generator = np.random.default_rng(1 + rank)
      examples = self._net.examples(generator, batch)
      labels = generator.integers(0, self._net.classes, batch)
      with tf.device(device):
        self._weights.append([tf.Variable(value) for value in weights])
        self._data.append((tf.Variable(examples, trainable=False),
                           tf.Variable(labels, trainable=False)))

  def step(self, ops: Any) -> Callable[[], None]:
    """Returns what trains all replicas once.

    Args:
      ops: averages their gradients; None for each replica's own.
    """
    def replica() -> tf.Tensor:
      context = tf.distribute.get_replica_context()
      rank = int(tf.get_static_value(context.replica_id_in_sync_group))
      examples, labels = self._data[rank]
      weights = self._weights[rank]
      gradients = self._net.gradients(weights, examples.read_value(),
                                      labels.read_value())
      if ops is not None:
        gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
      return _apply(weights, gradients)

    return self._run(replica, ops)

  def all_reduce(self, ops: Any) -> Callable[[], None]:
    """Returns what averages as many bytes, all there at once."""
    def replica() -> tf.Tensor:
      context = tf.distribute.get_replica_context()
      rank = int(tf.get_static_value(context.replica_id_in_sync_group))
      values = [_slices(weight, self._data[rank][0])
                if self._is_sparse(weight) else weight.read_value()
                for weight in self._weights[rank]]
      means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
      return tf.math.add_n([tf.reshape(
          getattr(mean, "values", mean), [-1])[0] for mean in means])

    return self._run(replica, ops)

  def plan_of(self, ops: Any) -> str:
    """Returns the buckets' sizes, in the order in which they are sent."""
    plan = executor.checked_plan(
        tuple(inputs.size_of([weight]) for weight in self._weights[0]
              if not self._is_sparse(weight)),
        topology_lib.Topology.from_devices(self._devices), ops._spec,
        ops._packing, ops._network, None, ops._backward_seconds)
    return ", ".join(f"{bucket.num_bytes / 1e6:.1f}" for bucket in plan.buckets)

  def _is_sparse(self, weight: tf.Variable) -> bool:
    return self._net is nets.NETS["embedding"] and (
        weight.shape == self._net.shapes[0])

  def _run(self, replica: Callable[[], tf.Tensor],
           ops: Any) -> Callable[[], None]:
    strategy = cluster_lib.multi_worker_strategy(self._cluster, ops)
    function = tf.function(
        lambda: strategy.experimental_local_results(strategy.run(replica)),
        autograph=False)
    return lambda: [one.numpy() for one in function()] and None


def _slices(weight: tf.Variable, examples: tf.Variable) -> tf.IndexedSlices:
  """Returns as much as an embedding's gradient has."""
  words = tf.reshape(examples.read_value(), [-1])
  return tf.IndexedSlices(tf.gather(weight, words), words,
                          tf.constant(weight.shape.as_list()))


def _apply(weights: list[tf.Variable], gradients: list[Any]) -> tf.Tensor:
  done = []
  for weight, gradient in zip(weights, gradients, strict=True):
    if isinstance(gradient, tf.IndexedSlices):
      done.append(weight.scatter_sub(tf.IndexedSlices(
          _RATE * gradient.values, gradient.indices)))
    else:
      done.append(weight.assign_sub(_RATE * gradient))
  with tf.control_dependencies(done):
    return tf.constant(0.0)
