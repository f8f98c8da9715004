"""tf_cdops.all_reduce: the plain function, for code without a strategy."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.execution import devices
from tf_cdops.execution import executor
from tf_cdops.execution import inputs
from tf_cdops.planning import planner


@tf.autograph.experimental.do_not_convert  # Tracing is quicker without.
def all_reduce(tensors: Sequence[Any], spec: Any = "auto", *,
               reduce_op: Any = tf.distribute.ReduceOp.SUM,
               topology: topology_lib.Topology | None = None,
               options: Any = None, network: Any = None, wire: Any = None,
               wire_scope: str = "across") -> list[tf.Tensor]:
  """Sums one tensor per device; returns the sum, one per device.

  >>> with tf.device("CPU:0"):
  ...   x = tf.constant([1.0, 2.0])
  >>> with tf.device("CPU:1"):
  ...   y = tf.constant([10.0, 20.0])
  >>> [z.numpy().tolist() for z in tf_cdops.all_reduce([x, y], "xring")]
  [[11.0, 22.0], [11.0, 22.0]]

  Args:
    tensors: one per device, all of one shape and dtype. Inside a tf.function
      they may have no device; then the strategy's devices are meant, or those
      of `topology`, and without either TensorFlow places the sum.
    spec: which algorithm, in how many shards, for which sizes. A file's
      packing has nothing to join here; its links, wire and plans are heeded.
    reduce_op: tf.distribute.ReduceOp.SUM or MEAN.
    topology: where the tensors are, if not where they say; also declares
      virtual workers.
    options: tf.distribute.experimental.CommunicationOptions, for the
      algorithms "collective" and "nccl".
    network: the links, by which "auto" chooses: see `MultiWorkerAllReduce`.
    wire: how messages between workers are encoded: likewise.
    wire_scope: "all" for messages between devices of one worker, too.

  Returns:
    The result on each device, in the order of `tensors`.

  Raises:
    ValueError: if the tensors differ, share a device, or the spec is wrong or
      can't run on these devices.
  """
  inputs.check_reduce_op(reduce_op)
  parsed = planner.parse_all_reduce_spec(spec)
  links = given_links.check(network)
  how = parsed.wire_for(wire, wire_scope)
  values = inputs.tensors_to_reduce(tensors)
  if topology is not None:
    _check_topology(topology, len(values))
  where = topology or _topology(values)
  if where is None:
    total = executor.sum_on("", values)
    if reduce_op == tf.distribute.ReduceOp.MEAN:
      total = executor.divide_on("", total, len(values))
    return executor.copy_to([""] * len(values), total)
  placed = [executor.as_tensor(value, name) if devices.device_of(value) == name
            else executor.copy_to([name], value)[0]
            for value, name in zip(values, where.devices, strict=True)]
  plan = executor.checked_plan((inputs.size_of(placed),), where, parsed,
                               network=links, wire=how)
  result, = executor.all_reduce(plan, [placed], where, reduce_op,
                                inputs.engine_options(options))
  return result


def _check_topology(topology: topology_lib.Topology, count: int) -> None:
  if not isinstance(topology, topology_lib.Topology):
    raise errors.InputError(
        f"`topology` ({topology!r}) must be a tf_cdops.Topology.")
  if len(topology.devices) != count:
    raise errors.InputError(
        f"`topology` has {len(topology.devices)} devices and `tensors` "
        f"{count}; there must be one tensor per device.")
  for name in topology.devices:
    devices.check_present(name, "topology")


def _topology(values: Sequence[Any]) -> topology_lib.Topology | None:
  """Returns where the values are; None if that can't be known."""
  names = devices.devices_of(tuple(values))
  if not all(names):
    return None
  for i, name in enumerate(names):
    if name in names[:i]:
      raise errors.InputError(
          f"`tensors` {names.index(name)} and {i} are both on {name}; an "
          "all-reduce takes one tensor per device: place each with tf.device, "
          "or say with `topology` where they are meant to be.")
  return topology_lib.Topology.from_devices(names)
