"""Emits TensorFlow ops: sums, means and copies, each on a named device."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops import registry
from tf_cdops.base import tf_compat
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.execution import devices
from tf_cdops.execution import emitted
from tf_cdops.execution import sparse
from tf_cdops.fabric import base
from tf_cdops.fabric import engines
from tf_cdops.fabric import tensorflow as tensorflow_fabric
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib
from tf_cdops.registry import proof
from tf_cdops.registry import requirements

# Sums a list of dense tensors, one per replica; tf.math.add_n is one.
AccumulationFn = Callable[[list[Any]], Any]
# Makes another algorithm of one.
Composition = Callable[[registry.Algorithm], registry.Algorithm]


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
  return requirements.Machine(tf_compat.has_kernel, devices.has_virtual_gpus)


@functools.lru_cache(maxsize=256)  # A training step plans once.
def checked_plan(sizes: tuple[planner.TensorSize, ...],
                 topology: topology_lib.Topology,
                 spec: spec_lib.AllReduceSpec,
                 packing: planner.Packing | None = None,
                 network: given_links.Given | None = None,
                 wire: registry.Wire | None = None,
                 backward_seconds: float | None = None) -> planner.Plan:
  """Plans a batch, and checks that the devices can follow the plan."""
  here = machine()
  nccl = requirements.nccl_can_run(topology, here)
  plan = planner.plan(sizes, topology, spec, packing, nccl, network, wire,
                      backward_seconds)
  for name in {bucket.algorithm for bucket in plan.buckets}:
    requirements.check(registry.lookup(name), topology, here)
  for algorithm in {plan.algorithm(bucket) for bucket in plan.buckets
                    if bucket.wired}:
    proof.check_wired(algorithm, topology)
  return plan


def all_reduce(plan: planner.Plan, batch: Sequence[Sequence[tf.Tensor]],
               topology: topology_lib.Topology, reduce_op: Any,
               options: engines.Options | None = None,
               composed: Sequence[Composition] = (),
               encode: tensorflow_fabric.Encode | None = None,
               summed_by: Callable[[planner.Bucket], registry.AllReduce]
               | None = None, num_replicas: int | None = None,
               note: Callable[[str], None] | None = None
               ) -> list[list[tf.Tensor]]:
  """Sums or averages a batch as planned.

  Args:
    plan: which tensors travel together and how.
    batch: for each value of the plan, one tensor per device.
    topology: the devices.
    reduce_op: tf.distribute.ReduceOp.SUM or MEAN.
    options: for TensorFlow's own engines.
    composed: what is made of each algorithm, such as `registry.in_order`.
    encode: makes a wire's messages; the codec does if None.
    summed_by: what sums a bucket; the plan's algorithm if None.
    num_replicas: of how many it is the mean; of the devices if None.
    note: is told what the names of its ops begin with, in a graph.

  Returns:
    For each value, its result, one tensor per device.
  """
  fabric = tensorflow_fabric.TensorFlowFabric(options, encode)
  divisor = ((num_replicas or len(topology.devices))
             if reduce_op == tf.distribute.ReduceOp.MEAN else None)
  results: list[list[tf.Tensor]] = [[] for _ in batch]
  with emitted.batch_scope(note):
    for number, bucket in enumerate(plan.buckets):
      sum_up = (summed_by(bucket) if summed_by
                else _composed(plan.algorithm(bucket), composed))
      with emitted.bucket_scope(number, bucket.algorithm):
        reduced = _reduced(bucket, [batch[i] for i in bucket.tensors], topology,
                           sum_up, fabric, divisor)
      for i, parts in zip(bucket.tensors, reduced, strict=True):
        results[i] = parts
  return results


def _reduced(bucket: planner.Bucket, values: Sequence[Sequence[tf.Tensor]],
             topology: topology_lib.Topology, sum_up: registry.AllReduce,
             fabric: tensorflow_fabric.TensorFlowFabric,
             divisor: int | None) -> list[list[tf.Tensor]]:
  """Returns the sums of a bucket's values, one tensor per device each.

  Args:
    bucket: whose they are.
    values: for each, one tensor per device.
    topology: the devices.
    sum_up: what sums.
    fabric: what emits.
    divisor: what the sums are divided by; None for nothing.
  """
  names = topology.devices
  layout = _Layout.from_tensors([tensors[0] for tensors in values])
  packed = [layout.pack([tensors[rank] for tensors in values], name,
                        fabric.emitter) for rank, name in enumerate(names)]
  vectors = packed  # A message has no shape to give back.
  if bucket.wired:
    vectors = [fabric.emitter.flat(tensor, name)
               for tensor, name in zip(packed, names, strict=True)]
  sums = sum_up(fabric, fabric.place(vectors, names),
                base.Group.from_topology(topology, bucket.rotation))
  by_device = []
  for rank, (total, name) in enumerate(zip(sums, names, strict=True)):
    whole = fabric.tensor(total, packed[rank])
    if whole is packed[rank]:  # Nothing to sum; place it all the same.
      whole = tensorflow_fabric.copy(whole, name)
    if divisor is not None:  # Once a pack.
      whole = divide_on(name, whole, divisor)
    by_device.append(layout.unpack(whole, name, fabric.emitter))
  return [list(parts) for parts in zip(*by_device, strict=True)]


def _composed(algorithm: registry.Algorithm,
              functions: Sequence[Composition]) -> registry.AllReduce:
  for compose in functions:
    algorithm = compose(algorithm)
  return algorithm.all_reduce


@dataclasses.dataclass(frozen=True)
class _Layout:
  """How tensors of one device lie in a pack; it is the same on each device.

  A pack of one tensor is that tensor, in its own shape, known or not.
  """

  shapes: tuple[tf.TensorShape, ...]
  lengths: tuple[int, ...]

  @classmethod
  def from_tensors(cls, tensors: Sequence[tf.Tensor]) -> "_Layout":
    """Returns the layout of tensors in this order."""
    shapes = tuple(tensor.shape for tensor in tensors)
    return cls(shapes, tuple(shape.num_elements() for shape in shapes))

  @functools.cached_property  # Each device asks, twice.
  def alike(self) -> bool:
    """Whether all have one shape: then they need no reshaping, nor copying out.

    TensorFlow's Unpack shares the memory of aligned parts; Split of a vector
    copies each.
    """
    return all(shape == self.shapes[0] for shape in self.shapes)

  def pack(self, tensors: Sequence[tf.Tensor], place: str,
           emitter: tensorflow_fabric.Emitter) -> tf.Tensor:
    """Returns one tensor with all tensors' elements."""
    if len(tensors) == 1:
      return tensors[0]
    if self.alike:
      return emitter.stack(tensors, place)
    return emitter.concat([emitter.flat(t, place) for t in tensors], place)

  def unpack(self, packed: tf.Tensor, place: str,
             emitter: tensorflow_fabric.Emitter) -> list[tf.Tensor]:
    """Returns the tensors that a pack consists of."""
    if len(self.shapes) == 1:
      return [packed]
    if self.alike:
      return emitter.unstack(packed, len(self.shapes), place)
    return [part if shape.rank == 1
            else emitter.reshape(part, tuple(shape), place)
            for part, shape in zip(emitter.split(packed, self.lengths, place),
                                   self.shapes, strict=True)]
