"""Checks the NCCL ops of a traced graph, and runs what they mean on the CPU.

NCCL needs GPUs, and this never runs it. But whether an NCCL op waits for ever
can be read off the graph, and what a group of them computes is known: so the
graph is checked, then each op is replaced by the sum of its group's inputs and
all devices by the CPU. Such a run shows what the graph computes around NCCL;
it says nothing of NCCL's own kernels.
"""

import collections
import dataclasses
import graphlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_OP = "NcclAllReduce"
_CPU = "/device:CPU:0"


class NcclGraphError(AssertionError):
  """A graph that could hang, or whose meaning isn't known."""


@dataclasses.dataclass(frozen=True)
class Group:
  """The ops with one `shared_name`: one all-reduce."""

  shared_name: str
  ops: tuple[tf.Operation, ...]

  @property
  def devices(self) -> tuple[str, ...]:
    return tuple(op.device for op in self.ops)

  @property
  def dtype(self) -> tf.DType:
    return self.ops[0].get_attr("T")


def check(fetches: Sequence[tf.Tensor]) -> tuple[Group, ...]:
  """Raises NcclGraphError if the ops that `fetches` need could hang.

  Every group must be complete, whichever of the fetches alone is wanted: one op
  a device, on different GPUs of one worker, alike in all else. On a device that
  two groups share, the op of one must wait for the op of the other; and no
  group may wait for itself, by way of others or not.

  Args:
    fetches: tensors of one graph, which may be a tf.function's.

  Returns:
    The groups in an order in which they can be launched.
  """
  graph = fetches[0].graph
  _check_visible(graph)
  roots = [fetch.op for fetch in fetches]
  ops = needed(roots)
  groups = _groups(ops)
  for group in groups:
    _check_group(group)
  for root in roots:
    for group in _groups(needed([root])):
      _check_complete(group, f"with {root.name} alone fetched")
  return _launch_order(groups, _waits(ops))


def run(fetches: Sequence[tf.Tensor],
        feeds: Mapping[str, Any]) -> list[np.ndarray]:
  """Checks the graph, then runs its meaning on the CPU; feeds are by name.

  Only data edges are kept: the order has been checked, and changes no value.
  """
  groups = check(fetches)
  graph_def = _meaning(fetches, groups)
  names = {node.name for node in graph_def.node}
  with tf.Graph().as_default() as graph:
    tf.graph_util.import_graph_def(graph_def, name="")
    with tf.compat.v1.Session(graph=graph) as session:
      return session.run(
          [fetch.name for fetch in fetches],
          {name: value for name, value in feeds.items()
           if name.partition(":")[0] in names})


def _check_visible(graph: tf.Graph) -> None:
  """Raises if there are NCCL ops that this file doesn't see or know."""
  graph_def = graph.as_graph_def()
  for function in graph_def.library.function:
    if any("Nccl" in node.op for node in function.node_def):
      raise NcclGraphError(
          f"NCCL ops inside the function {function.signature.name}, which the "
          "graph calls, can't be judged; check that function's own graph.")
  for node in graph_def.node:
    if "Nccl" in node.op and node.op != _OP:
      raise NcclGraphError(f"{node.name} is a {node.op}; only {_OP} is known.")


def needed(roots: Iterable[tf.Operation],
           control: bool = True) -> list[tf.Operation]:
  """Returns what runs for `roots`, each op after those that it waits for.

  Args:
    roots: ops that are wanted.
    control: whether control edges count, as they do when TensorFlow runs it.

  Returns:
    The roots, and all that they need.
  """
  done: dict[str, tf.Operation] = {}
  entered = set()
  stack = [(root, False) for root in reversed(list(roots))]
  while stack:
    op, left = stack.pop()
    if left:
      done[op.name] = op
    elif op.name not in entered:
      entered.add(op.name)
      stack.append((op, True))
      stack.extend((other, False) for other in reversed(_before(op, control)))
  position = {name: i for i, name in enumerate(done)}
  for op in done.values():
    for other in _before(op, control):
      if position[other.name] >= position[op.name]:
        raise NcclGraphError(f"{op.name} is in a cycle of the graph.")
  return list(done.values())


def _before(op: tf.Operation, control: bool = True) -> list[tf.Operation]:
  return [*(tensor.op for tensor in op.inputs),
          *(op.control_inputs if control else ())]


def _groups(ops: Iterable[tf.Operation]) -> list[Group]:
  by_name = collections.defaultdict(list)
  for op in ops:
    if op.type == _OP:
      by_name[op.get_attr("shared_name").decode()].append(op)
  return [Group(name, tuple(members)) for name, members in by_name.items()]


def _check_group(group: Group) -> None:
  for what in ("num_devices", "reduction", "T"):
    _check_one(group, what, {op.get_attr(what) for op in group.ops})
  if not all(a.outputs[0].shape.is_compatible_with(b.outputs[0].shape)
             for a, b in itertools.combinations(group.ops, 2)):
    _check_one(group, "shape", {str(op.outputs[0].shape) for op in group.ops})
  places = [tf.DeviceSpec.from_string(device) for device in group.devices]
  for place in places:
    if place.device_type != "GPU" or place.device_index is None:
      raise NcclGraphError(
          f"{_label(group)} has an op on {place.to_string()!r}, not on a GPU.")
  _check_one(group, "worker", {(p.job, p.replica, p.task) for p in places})
  twice = [device for device, count
           in collections.Counter(group.devices).items() if count > 1]
  if twice:
    raise NcclGraphError(f"{_label(group)} has two ops on {twice[0]}.")
  _check_complete(group, "with all outputs fetched")


def _check_one(group: Group, what: str, values: set[Any]) -> None:
  if len(values) > 1:
    raise NcclGraphError(
        f"{_label(group)} has more than one {what}: "
        f"{', '.join(sorted(map(str, values)))}.")


def _check_complete(group: Group, when: str) -> None:
  wanted = group.ops[0].get_attr("num_devices")
  if len(group.ops) != wanted:
    raise NcclGraphError(
        f"{_label(group)} has {len(group.ops)} of {wanted} ops {when}, "
        "and would wait for ever.")


def _waits(ops: Sequence[tf.Operation]) -> dict[str, set[str]]:
  """Returns, for each NCCL op, all NCCL ops it waits for, by their names."""
  waits: dict[str, set[str]] = {}
  for op in ops:
    waits[op.name] = set()
    for other in _before(op):
      waits[op.name] |= waits[other.name]
      if other.type == _OP:
        waits[op.name].add(other.name)
  return {op.name: waits[op.name] for op in ops if op.type == _OP}


def _launch_order(groups: Sequence[Group],
                  waits: Mapping[str, set[str]]) -> tuple[Group, ...]:
  """Returns the groups in order; raises if devices could disagree on it.

  A group is done only when all its ops are, so it waits for whatever one of
  them waits for: two groups can block each other without a cycle of ops.
  """
  for one, other in itertools.combinations(groups, 2):
    for a, b in itertools.product(one.ops, other.ops):
      if a.device == b.device and not (
          a.name in waits[b.name] or b.name in waits[a.name]):
        raise NcclGraphError(
            f"{_label(one)} and {_label(other)} have no order on {a.device}: "
            "it could launch either first.")
  owner = {op.name: group for group in groups for op in group.ops}
  sorter = graphlib.TopologicalSorter({
      group: {owner[name] for op in group.ops for name in waits[op.name]}
      for group in groups})
  try:
    return tuple(sorter.static_order())
  except graphlib.CycleError as error:
    names = ", ".join(_label(group) for group in error.args[1])
    raise NcclGraphError(f"each waits for the next: {names}.") from error


def _meaning(fetches: Sequence[tf.Tensor],
             groups: Sequence[Group]) -> tf.compat.v1.GraphDef:
  """Returns what `fetches` need, on the CPU, each NCCL op as a sum."""
  source = fetches[0].graph.as_graph_def()
  nodes = {node.name: node for node in source.node}
  owner = {op.name: group for group in groups for op in group.ops}
  result = tf.compat.v1.GraphDef(
      versions=source.versions, library=source.library)
  roots = [fetch.op for fetch in fetches]
  roots += [op for group in groups for op in group.ops]
  for op in needed(roots, control=False):
    node = result.node.add()
    node.CopyFrom(nodes[op.name])
    node.device = _CPU
    node.attr.pop("_class", None)  # It may name an op that isn't needed.
    node.input[:] = [name for name in node.input if name[0] != "^"]
    if op.name in owner:
      _become_sum(node, [nodes[member.name].input[0]
                         for member in owner[op.name].ops])
  return result


def _become_sum(node: Any, inputs: Sequence[str]) -> None:
  """Makes an NCCL op's node the sum of its group's inputs."""
  if node.attr["reduction"].s != b"sum":
    raise NcclGraphError(
        f"{node.name} has the reduction {node.attr['reduction'].s.decode()!r}; "
        "only sums can be run.")
  dtype = node.attr["T"].type
  node.op = "AddN"
  node.input[:] = inputs
  node.attr.clear()
  node.attr["T"].type = dtype
  node.attr["N"].i = len(inputs)


def _label(group: Group) -> str:
  return f"group {group.shared_name!r}"
