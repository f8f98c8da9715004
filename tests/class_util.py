"""Batches, specs and topologies for the tests of the three classes."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from absl.testing import absltest
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops

SUM, MEAN = test_util.SUM, test_util.MEAN
REPLICAS = test_util.GRAPH_DEVICES
DEVICES = virtual_devices.names(REPLICAS)
# One machine's devices as two workers, and as three.
PAIRED = tf_cdops.Topology.from_devices(DEVICES, [DEVICES[:2], DEVICES[2:]])
UNEVEN = tf_cdops.Topology.from_devices(
    DEVICES, [DEVICES[:1], DEVICES[1:3], DEVICES[3:]])

ALONE = tuple(algorithm.name for algorithm
              in tf_cdops.all_reduce_algorithms()
              if not algorithm.device_types)
PAIRS = ("pscpu/pscpu#2", "ps/xring#3", "xring/rechd", "rechd/collective",
         "hierarchical_copy/ps#2", "collective/xring")
BY_SIZE = ("ps:16:xring#3:24:rechd", "collective#2:8:hierarchical_copy#7",
           "auto")
SPECS = ALONE + PAIRS + BY_SIZE
PACKINGS = (
    {"num_packs": 0}, {"num_packs": 1}, {"num_packs": 2}, {"num_packs": 5},
    {"num_packs": 0, "agg_small_grads_max_bytes": 32,
     "agg_small_grads_max_group": 2})
CLASSES = (tf_cdops.AllReduceCrossDeviceOps, tf_cdops.NcclAllReduce,
           tf_cdops.MultiWorkerAllReduce)


def make(spec: Any, **kwargs: Any) -> tf.distribute.CrossDeviceOps:
  """Returns the class that fits: pairs need workers, and so a topology."""
  if spec in PAIRS:
    kwargs.setdefault("topology", PAIRED)
  if spec in ALONE and not kwargs.keys() - PACKINGS[-1].keys():
    return tf_cdops.AllReduceCrossDeviceOps(spec, **kwargs)
  return tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, **kwargs)


def each(value: Callable[[int], Any], replicas: int = REPLICAS) -> Any:
  """Returns a PerReplica of value(1), value(2), …"""
  return virtual_devices.per_replica(
      [value(r) for r in range(1, replicas + 1)])


def vectors(lengths: list[int], replicas: int = REPLICAS,
            dtype: Any = tf.float32) -> list[Any]:
  """Returns PerReplicas of those lengths; every element differs."""
  return [each(lambda r, n=n: tf.cast(tf.range(n) + 100 * r, dtype), replicas)
          for n in lengths]


def of_unknown_shape(tensor: Any, shape: Any) -> Any:
  """Hides a tensor's static shape, but for `shape`; in eager there's no way."""
  return tf.compat.v1.placeholder_with_default(tensor, shape)


def mixed_batch() -> list[Any]:
  """Returns a bit of everything; every sum is exact."""
  grid = tf.reshape(tf.range(6.0), [2, 3])
  slices = test_util.per_replica_slices(
      *[(np.full([n, 2], n + 1), list(range(n)), [4, 2]) for n in (1, 3, 0, 2)])
  return [
      each(lambda r: grid + 10.0 * r),
      each(lambda r: tf.range(5, dtype=tf.float64) * r),
      each(lambda r: tf.complex([1.0 * r, 2.0], [3.0, 4.0 * r])),
      slices,
      each(lambda r: tf.constant(1.0 * r)),
      each(lambda r: tf.constant(3 * r, tf.float64)),
      each(lambda r: tf.zeros([0, 3])),
      each(lambda r: of_unknown_shape(grid * r, None)),
      each(lambda r: of_unknown_shape(grid - r, [None, 3])),
      each(lambda r: tf.range(7, dtype=tf.float32) * r),
  ]


def batch_reduce(ops: Any, reduce_op: Any, values: list[Any],
                 options: Any = None) -> list[Any]:
  return ops.batch_reduce(reduce_op, [(v, v) for v in values], options)


def arrays(results: list[Any]) -> list[list[Any]]:
  """Returns what each device got, for each result."""
  return [[part.numpy().tolist() for part in test_util.local_results(result)]
          for result in results]


def sums(values: list[Any]) -> list[list[Any]]:
  """Returns what an all-reduce of `values` must give on each device."""
  return [[sum(v.numpy() for v in value.values).tolist()] * len(value.values)
          for value in values]


def traced(emit: Callable[[], Any]) -> list[tf.Operation]:
  """Returns the ops that `emit` puts into a tf.function's graph."""
  def function() -> None:
    emit()
  return tf.function(function).get_concrete_function().graph.get_operations()


def kind(ops: list[tf.Operation], op_type: str) -> list[tf.Operation]:
  return [op for op in ops if op.type == op_type]


def strategy_of(ops: Any, replicas: int = REPLICAS) -> tf.distribute.Strategy:
  return tf.distribute.MirroredStrategy(
      virtual_devices.names(replicas), cross_device_ops=ops)


@contextlib.contextmanager
def no_logs(test: absltest.TestCase) -> Iterator[None]:
  """Asserts that neither we nor TensorFlow warn of anything."""
  with test.assertNoLogs("absl", logging.WARNING), test.assertNoLogs(
      "tensorflow", logging.WARNING):
    yield


@functools.cache  # One reference serves every spec.
def tensorflows_results(mode: str, reduce_op: Any) -> list[test_util.Result]:
  return test_util.run(mode, lambda: batch_reduce(
      tf.distribute.ReductionToOneDevice(), reduce_op, mixed_batch()))
