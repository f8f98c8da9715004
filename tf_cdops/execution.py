"""Emits TensorFlow ops: sums, means and copies, each on a named device."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops import _tf_compat
from tf_cdops import devices
from tf_cdops import packing as packing_lib
from tf_cdops import planning
from tf_cdops import sparse
from tf_cdops import spec as spec_lib
from tf_cdops import topology as topology_lib
from tf_cdops.algorithms import hierarchical
from tf_cdops.algorithms import requirements
from tf_cdops.algorithms import sharding
from tf_cdops.fabric import base
from tf_cdops.fabric import emitting
from tf_cdops.fabric import engines
from tf_cdops.fabric import tensorflow as tensorflow_fabric

# Sums one dense tensor a replica; tf.math.add_n is one.
AccumulationFn = Callable[[list[Any]], Any]


def sum_on(device: str, values: Sequence[Any],
           accumulation_fn: AccumulationFn = tf.math.add_n) -> Any:
  """Sums tensors or IndexedSlices on `device`."""
  with tf.device(device):
    if any(sparse.is_sparse(value) for value in values):
      return sparse.add_slices(values)
    return accumulation_fn([tf.convert_to_tensor(value) for value in values])


def divide_on(device: str, value: Any, count: int) -> Any:
  """Divides by the number of replicas; int64 becomes float64, as in TF."""
  with tf.device(device):
    if sparse.is_sparse(value):
      return sparse.divide(value, count)
    return value / count


def as_tensor(value: Any, device: str) -> tf.Tensor:
  """Returns a replica's tensor, or its variable's value, on its device."""
  if isinstance(value, tf.Tensor):
    return value
  with tf.device(device):
    return tf.convert_to_tensor(value)


def gather_slices(values: Sequence[Any], names: Sequence[str],
                  reduce_op: Any) -> list[tf.IndexedSlices]:
  """Sums IndexedSlices by sending all of them to each device."""
  results = []
  for name in names:
    total = sum_on(name, values)
    if reduce_op == tf.distribute.ReduceOp.MEAN:
      total = divide_on(name, total, len(values))
    results.append(total)
  return results


def concat_on(device: str, values: Sequence[Any], axis: int) -> tf.Tensor:
  """Joins tensors along `axis` on `device`."""
  with tf.device(device):
    return tf.concat([tf.convert_to_tensor(value) for value in values], axis)


def copy_to(names: Sequence[str], value: Any) -> list[Any]:
  """Copies a tensor or IndexedSlices to each device."""
  copies = []
  for name in names:
    with tf.device(name):
      copies.append(sparse.copy(value) if sparse.is_sparse(value)
                    else tf.identity(value))
  return copies


def machine() -> requirements.Machine:
  """Returns what this TensorFlow has, for checking an algorithm's needs."""
  return requirements.Machine(_tf_compat.has_kernel, devices.has_virtual_gpus)


@functools.lru_cache(maxsize=256)  # A training step plans once.
def checked_plan(sizes: tuple[planning.TensorSize, ...],
                 topology: topology_lib.Topology,
                 spec: spec_lib.AllReduceSpec,
                 packing: planning.Packing | None = None) -> planning.Plan:
  """Plans a batch, and checks that the devices can follow the plan."""
  here = machine()
  nccl = requirements.nccl_can_run(topology, here)
  plan = planning.plan(sizes, topology, spec, packing, nccl)
  for name in {bucket.algorithm for bucket in plan.buckets}:
    requirements.check(hierarchical.find(name), topology, here)
  return plan


def all_reduce(plan: planning.Plan, batch: Sequence[Sequence[tf.Tensor]],
               topology: topology_lib.Topology, reduce_op: Any,
               options: engines.Options | None = None, in_order: bool = False
               ) -> list[list[tf.Tensor]]:
  """Sums or averages a batch as planned.

  Args:
    plan: which tensors travel together and how.
    batch: for each value of the plan, one tensor per device.
    topology: the devices.
    reduce_op: tf.distribute.ReduceOp.SUM or MEAN.
    options: for TensorFlow's own engines.
    in_order: whether sums are made in the order of replicas, to the bit.

  Returns:
    For each value, its result, one tensor per device.
  """
  names = topology.devices
  fabric = tensorflow_fabric.TensorFlowFabric(options, in_order)
  results: list[list[Any]] = [[None] * len(names) for _ in batch]
  for bucket in plan.buckets:
    values = [batch[i] for i in bucket.tensors]
    layout = packing_lib.Layout.of([tensors[0] for tensors in values])
    packed = [layout.pack([tensors[rank] for tensors in values], name,
                          fabric.emitter) for rank, name in enumerate(names)]
    sums = sharding.all_reduce(
        fabric, hierarchical.find(bucket.algorithm),
        fabric.place(packed, names), base.Group.of(topology, bucket.turn),
        bucket.shards)
    for rank, (total, name) in enumerate(zip(sums, names, strict=True)):
      whole = fabric.tensor(total, packed[rank])
      if whole is packed[rank]:  # Nothing to sum; place it all the same.
        whole = emitting.copy(whole, name)
      if reduce_op == tf.distribute.ReduceOp.MEAN:  # Once a pack.
        whole = divide_on(name, whole, len(names))
      parts = layout.unpack(whole, name, fabric.emitter)
      for i, part in zip(bucket.tensors, parts, strict=True):
        results[i][rank] = part
  return results
