"""SpmdAllReduce: all-reduce among programs, one a worker."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops import registry
from tf_cdops.base import device_names
from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.base import topology as topology_lib
from tf_cdops.cross_device_ops import guarded
from tf_cdops.execution import executor
from tf_cdops.execution import feedback
from tf_cdops.execution import finite_sums
from tf_cdops.execution import inputs
from tf_cdops.execution import kept_functions
from tf_cdops.execution import same_shapes
from tf_cdops.execution import sparse as sparse_lib
from tf_cdops.execution import spmd
from tf_cdops.fabric import peers as peers_lib
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib
from tf_cdops.planning import spmd_rules
from tf_cdops.registry import requirements


class SpmdAllReduce(guarded.GuardedCrossDeviceOps):
  """What `SpmdStrategy` reduces with, on the devices of one program.

  Every call is one of all programs: each makes the same, in the same order.
  """

  def __init__(self, devices: Sequence[str], num_workers: int, *,
               spec: spec_lib.AllReduceSpec, wire: registry.Wire | None = None,
               bytes_per_pack: int | None = None, sparse: str = "gather",
               on_nonfinite: str | None = None, rank: int = 0,
               on_call: Callable[[], int] | None = None,
               on_arrival: Callable[..., None] | None = None):
    """Initializes.

    Args:
      devices: this program's; every program has as many of the same kind.
      num_workers: how many programs there are.
      spec: what sums which tensors.
      wire: how messages between programs are encoded.
      bytes_per_pack: the most bytes that travel together; None to choose.
      sparse: see `AllReduceCrossDeviceOps`.
      on_nonfinite: see `AllReduceCrossDeviceOps`.
      rank: the number of this program.
      on_call: is called when a function that has all-reduces is.
      on_arrival: emits what tells that an all-reduce can begin; see
        `KeptFunctions`.
    """
    super().__init__(on_nonfinite)
    self._devices, self._num_workers = tuple(devices), num_workers
    self._rank = rank
    self._wire = wire if num_workers > 1 else None
    self._bytes_per_pack = bytes_per_pack
    self._sparse = sparse_lib.check_mode(sparse)
    self._on_call, self._on_arrival = on_call, on_arrival
    self.topology = _everyones(self._devices, num_workers)
    self.spec = spmd_rules.resolve(
        spec, num_workers, wire=self._wire,
        nccl=requirements.nccl_can_run(self.topology, executor.machine()))
    self._feedback = feedback.Feedback()
    self._emitted = kept_functions.KeptFunctions(self._devices, on_call,
                                                  on_arrival)

  @property
  def rank(self) -> int:
    """The number of this program."""
    return self._rank

  @property
  def _num_between_graph_workers(self) -> int:
    """What TensorFlow's base class asks, lest it take one value for the sum."""
    return self._num_workers

  def __deepcopy__(self, memo: Any) -> "SpmdAllReduce":
    return SpmdAllReduce(
        self._devices, self._num_workers, spec=self.spec, wire=self._wire,
        bytes_per_pack=self._bytes_per_pack, sparse=self._sparse,
        on_nonfinite=self._on_nonfinite, rank=self._rank,
        on_call=self._on_call, on_arrival=self._on_arrival)

  def plan(self, sizes: tuple[planner.TensorSize, ...],
           options: Any = None) -> planner.Plan:
    """Returns how a batch travels; all programs come to the same."""
    cap = (options.bytes_per_pack if options else 0) or self._bytes_per_pack
    packing = spmd_rules.packing(sizes, self._num_workers, cap)
    return spmd_rules.sharded(executor.checked_plan(
        sizes, self.topology, self.spec, packing, None, self._wire), sizes,
                              self._num_workers)

  def _all_reduce(self, reduce_op: Any, value: Any, replica_id: int,
                  options: Any) -> Any:
    """All-reduces what one replica has, without seeing the others here.

    TensorFlow asks for it under XLA, on GPUs; that was never tried.
    """
    place = self._devices[replica_id]
    peers = self._peers(options)

    def reduced(one: Any) -> Any:
      with tf.device(place):
        total = peers.all_reduce_everywhere(tf.convert_to_tensor(one), place)
      return (executor.divide_on(place, total, peers.num_replicas)
              if reduce_op == tf.distribute.ReduceOp.MEAN else total)

    return tf.nest.map_structure(reduced, value)

  def gather_from_programs(self, vector: tf.Tensor) -> tf.Tensor:
    """Joins what programs have, whatever its length, in their order."""
    peers = self._peers(None)
    place = self._devices[0]
    return self._emitted.run(
        ("gather from programs", peers), lambda values: executor.copy_to(
            self._devices, peers.all_gather_rows(values[0], place)),
        [vector])[0]

  def reduce(self, reduce_op: Any, per_replica_value: Any, destinations: Any,
             options: Any = None) -> Any:
    return super().reduce(reduce_op, per_replica_value,
                          _meant_by(destinations, per_replica_value), options)

  def batch_reduce(self, reduce_op: Any, value_destination_pairs: Any,
                   options: Any = None) -> list[Any]:
    if isinstance(value_destination_pairs, (list, tuple)):
      value_destination_pairs = [
          (pair[0], _meant_by(pair[1], pair[0]))
          if isinstance(pair, tuple) and len(pair) == 2 else pair
          for pair in value_destination_pairs]
    return super().batch_reduce(reduce_op, value_destination_pairs, options)

  def _gather(self, per_replica_value: Any, destinations: Any, axis: Any,
              options: Any = None) -> Any:
    return super()._gather(per_replica_value,
                           _meant_by(destinations, per_replica_value), axis,
                           options)

  def batch_reduce_implementation(self, reduce_op: Any,
                                  value_destination_pairs: Any,
                                  options: Any) -> list[Any]:
    tf_compat.mark_as_unsaveable()
    values = [self._on_devices(value) for value, _ in value_destination_pairs]
    if tf.executing_eagerly() and self._num_workers > 1:
      same_shapes.check(values, self.gather_from_programs)
    labels = self._labels(value_destination_pairs)
    return [self._placed(result, value, destinations)
            for result, (value, destinations) in zip(
                self._reduced(reduce_op, values, labels, options),
                value_destination_pairs, strict=True)]

  def _gather_implementation(self, per_replica_value: Any, destinations: Any,
                             axis: Any, options: Any) -> Any:
    tf_compat.mark_as_unsaveable()
    peers = self._peers(options)
    values = self._on_devices(per_replica_value)
    known = tf.get_static_value(axis) if tf.is_tensor(axis) else axis
    joined = self._emitted.run(
        ("gather", None if known is None else int(known), peers),
        lambda flat: spmd.gather(flat, axis, peers), values)
    return self._placed(joined, per_replica_value, destinations)

  def _on_devices(self, value: Any) -> list[Any]:
    """Returns what each device has of a value, as a tensor or slices."""
    if len(value.values) != len(self._devices):
      raise errors.InputError(
          f"`value` has {len(value.values)} replicas and this program "
          f"{len(self._devices)} devices; there must be one per device.")
    return [part if sparse_lib.is_sparse(part)
            else executor.as_tensor(part, place)
            for part, place in zip(value.values, self._devices, strict=True)]

  def _reduced(self, reduce_op: Any, batch: Sequence[Sequence[Any]],
               labels: Sequence[str], options: Any) -> list[list[Any]]:
    """Returns results, one per device, of values, one per device each."""
    peers = self._peers(options)
    prepared = [sparse_lib.prepare(values, self._devices, self._sparse)
                for values in batch]
    cap = options.bytes_per_pack if options else 0
    # What has been emitted has the names that were known then.
    results: list[list[Any]] = self._emitted.run(
        ("reduce", reduce_op, peers, cap, *labels),
        lambda values: self._emit_guarded(reduce_op, values, labels, peers,
                                          options), prepared, alike=True)
    return results

  def _emit_guarded(self, reduce_op: Any, batch: Sequence[Sequence[Any]],
                    labels: Sequence[str], peers: peers_lib.Peers,
                    options: Any) -> list[list[Any]]:
    results = self._emit(reduce_op, batch, peers, options)
    which = [i for i, values in enumerate(batch)
             if labels and finite_sums.can_be_infinite(values[0].dtype)]
    if not which:
      return results
    guard = self._guard(
        self._devices, self.topology, [labels[i] for i in which],
        **spmd.guarding(peers), first=self._rank * len(self._devices))
    for i, parts in zip(which, guard.answered(
        [batch[i] for i in which], [results[i] for i in which], reduce_op),
                        strict=True):
      results[i] = parts
    return results

  def _emit(self, reduce_op: Any, batch: Sequence[Sequence[Any]],
            peers: peers_lib.Peers, options: Any) -> list[list[Any]]:
    results: list[Any] = [None] * len(batch)
    dense = {}
    for i, values in enumerate(batch):
      if any(map(sparse_lib.is_sparse, values)):
        results[i] = spmd.gather_slices(values, peers, reduce_op)
      else:
        dense[i] = values
    if dense:
      sizes = tuple(map(inputs.size_of, dense.values()))
      plan = self.plan(sizes, options)
      encode = (self._feedback.of_batch(plan.buckets, sizes).encode
                if plan.wire and plan.wire.codec.has_state else None)
      for i, result in zip(dense, spmd.all_reduce(
          plan, list(dense.values()), peers, reduce_op, encode,
          self._emitted_batches.noting(plan, sizes, list(dense.values()),
                                       self.topology)), strict=True):
        results[i] = result
    return results

  def _placed(self, results: Sequence[Any], value: Any,
              destinations: Any) -> Any:
    """Returns a result that each device has where it is wanted."""
    if destinations is value or isinstance(
        destinations, tf_compat.PerReplica):
      return tf_compat.mirrored(results)
    targets = inputs.destination_devices(destinations)
    if len(targets) == len(self._devices) and all(
        map(device_names.may_be_same, targets, self._devices)):
      return tf_compat.mirrored(results)
    return tf_compat.mirrored([
        executor.copy_to([target], next(
            (result for result, place in zip(results, self._devices,
                                             strict=True)
             if device_names.may_be_same(place, target)), results[0]))[0]
        for target in targets])

  def _peers(self, options: Any) -> peers_lib.Peers:
    return peers_lib.Peers(self._num_workers, self._devices,
                           inputs.engine_options(options).implementation)


def _meant_by(destinations: Any, value: Any) -> Any:
  """Returns destinations by which a program's only replica means itself.

  TensorFlow names its tensor's device, which has no name inside a function.
  """
  if not isinstance(value, tf.distribute.DistributedValues) and (
      destinations is value
      or (isinstance(destinations, str) and not destinations)):
    return tf_compat.PerReplica((value,))
  return destinations


def _everyones(devices: Sequence[str],
               num_workers: int) -> topology_lib.Topology:
  """Returns all programs' devices, as if their tasks were numbered."""
  parsed = [device_names.parse(name) for name in devices]
  names = [f"/job:worker/replica:0/task:{task}/device:{one.type}:{one.index}"
           for task in range(num_workers) for one in parsed]
  return topology_lib.Topology.from_devices(names)
