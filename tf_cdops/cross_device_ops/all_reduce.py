"""AllReduceCrossDeviceOps: all-reduce by any algorithm of the registry."""

import collections
import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

from absl import logging
import tensorflow as tf

from tf_cdops.base import device_names
from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.cross_device_ops import guarded
from tf_cdops.cross_device_ops import reduction_to_one_device
from tf_cdops.execution import devices as devices_lib
from tf_cdops.execution import executor
from tf_cdops.execution import feedback
from tf_cdops.execution import inputs
from tf_cdops.execution import recent_plans
from tf_cdops.execution import sparse as sparse_lib
from tf_cdops.planning import pinned
from tf_cdops.planning import planner


class AllReduceCrossDeviceOps(guarded.GuardedCrossDeviceOps):
  """All-reduces with an algorithm of your choice, tensors packed or not.

  What isn't an all-reduce (one destination, or other devices than the
  value's) is done as `ReductionToOneDevice` does it.

  >>> strategy = tf.distribute.MirroredStrategy(
  ...     ["CPU:0", "CPU:1", "CPU:2"],
  ...     cross_device_ops=tf_cdops.AllReduceCrossDeviceOps("xring"))
  """

  # The default of `num_packs`, which a file that says how to pack replaces.
  _DEFAULT_PACKS = 1

  def __init__(self, all_reduce_alg: Any = "nccl", num_packs: int = 1,
               agg_small_grads_max_bytes: int = 0,
               agg_small_grads_max_group: int = 10, *,
               sparse: str = "gather", wire: Any = None,
               wire_scope: str = "across", on_nonfinite: str | None = None):
    """Initializes with an algorithm and a way of packing.

    Args:
      all_reduce_alg: an algorithm's name, or a spec that chooses by size. See
        `tf_cdops.all_reduce_algorithms`. "nccl" raises where it can't run.
        "@file.json" reads a spec from a file, and if the file says how to
        pack, as that of `tf_cdops tune` does, its packing too: it goes before
        the defaults of the next three, but not before other values of them.
        The file's links are those by which "auto" chooses, its wire is used
        unless `wire` is given, and a batch for which it has a plan, as that of
        `save_plans` does, is done exactly so.
      num_packs: tensors are joined into this many packs of near-equal size for
        each dtype (more where a pack would be larger than 64 MiB, or
        `bytes_per_pack` of the options). 0 for no packing.
      agg_small_grads_max_bytes: where num_packs is 0, tensors up to this size
        are joined. 0 for none.
      agg_small_grads_max_group: at most this many of those are joined. 0 for
        none, not even where the spec "auto" would join some.
      sparse: what becomes of tf.IndexedSlices. "gather" sends every slice to
        every device, so that an optimizer gets what one device would give it.
        "deduplicate" first adds up a replica's slices of one index, and
        "dense" makes them dense, for layers that use most of their rows.
        Beware: sums are the same, but Keras' optimizers that square gradients
        (Adam, Adagrad, RMSprop) square each slice by itself. Where an index
        occurs more than once in a batch, only "gather" trains as one device
        does; "dense" trains as one device does with dense gradients. With
        SGD, with momentum or without, all three agree up to rounding.
      wire: how messages between workers are made smaller: None for not at all,
        "bfloat16", "float16", "int8", or a codec of your own: see
        `tf_cdops.register_wire_codec`. Sums are made in the tensor's own
        dtype; a message is encoded where it leaves and decoded where it
        arrives, and all replicas get the same bits. The spec "auto" then
        takes algorithms that round each term once and the sum once, or no
        wire where that is predicted to be quicker. Dtypes that a codec
        doesn't take, and sparse values that are gathered, travel as they are.
        With "int8" this object keeps what rounding lost, by the types and
        sizes of a batch's tensors, and adds it in the next step; so two models
        of the same sizes want an object each. A v1 graph has that among its
        local variables.
      wire_scope: "across" for messages between workers, "all" for those
        between devices of one worker, too.
      on_nonfinite: what becomes of numbers that aren't finite (NaN, inf or
        -inf), which would spoil every replica's weights. None for nothing:
        no op is emitted. "raise" raises tf.errors.InvalidArgumentError.
        "drop" leaves a replica's tensor out of the sum, and says so on
        standard error: if that befalls k of N replicas, the sum of the others
        is multiplied by N/(N-k), so that a mean is that of the others; if it
        befalls all, it raises. Both name the replica, its worker, how many
        elements there are, and the variable if `name_tensors` has made it
        known, else the tensor's position, shape and dtype. A sum tells that
        something isn't finite, and each replica's own device then looks at
        what the replica had before the sum; all replicas decide alike. Every
        floating or complex value that this object reduces is looked at:
        metrics, and what a user's own `reduce` brings here, too. A wire of
        your own must let infinities and NaNs through.

    Raises:
      ValueError: for a wrong spec, a negative number, an unknown `sparse` or
        `on_nonfinite`.
    """
    super().__init__(on_nonfinite)
    self._spec = planner.parse_all_reduce_spec(all_reduce_alg,
                                               "all_reduce_alg")
    self._packing = self._as_in_file(planner.Packing(
        errors.check_whole_number("num_packs", num_packs, 0),
        errors.check_whole_number("agg_small_grads_max_bytes",
                                  agg_small_grads_max_bytes, 0),
        errors.check_whole_number("agg_small_grads_max_group",
                                  agg_small_grads_max_group, 0)))
    self._sparse = sparse_lib.check_mode(sparse)
    self._one_device = reduction_to_one_device.ReductionToOneDevice()
    self._composed: tuple[executor.Composition, ...] = ()
    self._network: given_links.Given | None = None
    self._backward_seconds: float | None = None
    self._wire = self._spec.wire_for(wire, wire_scope)
    self._feedback = feedback.Feedback()
    self._plans = recent_plans.RecentPlans()
    self._warned_of_no_plan = False

  def save_plans(self, path: str | os.PathLike[str]) -> None:
    """Writes the plans of all batches so far, up to the 64 latest.

    Given as "@path" instead of a spec, the file pins them: batches of the same
    tensors and workers are done exactly so, with the same buckets, algorithms,
    shards and rotations, and the others by the same spec, packing and links.

    Args:
      path: the file.

    Raises:
      ValueError: if nothing has been all-reduced yet, or the file can't be
        written.
    """
    self._plans.save(path, self._spec, self._packing, self._network,
                     self._wire)

  def wire_overflows(self) -> tf.Tensor:
    """Returns how many numbers were too large for the wire so far.

    They were sent as the largest that it has. Of "float16", beyond 65504; the
    first time, each device says so on its worker's standard error.
    """
    return tf.math.add_n([tf.constant(0, tf.int64), *(
        counted.read_value() for counted in self._feedback.overflows())])

  def __repr__(self) -> str:
    return f"{type(self).__name__}({', '.join(self._settings())})"

  def _settings(self) -> list[str]:
    packing = self._packing
    # Its lines alone don't say what a file with plans does.
    spec = f"@{self._spec.file}" if self._spec.plans else str(self._spec)
    return [
        f"{spec!r}", f"num_packs={packing.num_packs}",
        f"agg_small_grads_max_bytes={packing.small_max_bytes}",
        f"agg_small_grads_max_group={packing.small_max_group}",
        f"sparse={self._sparse!r}",
        *([f"wire={self._wire.codec.name!r}",
           f"wire_scope={self._wire.scope!r}"] if self._wire else []),
        *self._guard_settings()]

  def _reduce_batch(self, reduce_op: Any, pairs: Sequence[tuple[Any, Any]],
                    options: Any) -> tuple[list[Any], list[Sequence[Any]]]:
    results: list[Any] = [None] * len(pairs)
    summed: list[Sequence[Any]] = [value.values for value, _ in pairs]
    batches: dict[topology_lib.Topology, dict[int, Sequence[Any]]] = (
        collections.defaultdict(dict))
    for i, (value, destinations) in enumerate(pairs):
      names = self._all_reduce_devices(value, destinations)
      topology = self._topology(names) if names else None
      if topology is None:
        result = self._one_device.reduce_implementation(
            reduce_op, value, destinations, options)
        how = "summed on one device"
      else:
        values = value.values
        is_sparse = any(map(sparse_lib.is_sparse, values))
        if is_sparse:
          summed[i] = values = sparse_lib.prepare(values, topology.devices,
                                                  self._sparse)
          is_sparse = any(map(sparse_lib.is_sparse, values))
        if not is_sparse:
          batches[topology][i] = values
          continue
        result = tf_compat.mirrored(executor.gather_slices(
            values, topology.devices, reduce_op))
        how = "gathered"
      results[i] = self._checked(i, value, result, reduce_op, how)
    for topology, batch in batches.items():
      reduced = self._all_reduce_batch(
          reduce_op, topology, list(batch.values()), options)
      for i, (tensors, algorithm) in zip(batch, reduced, strict=True):
        results[i] = self._checked(
            i, pairs[i][0], tf_compat.mirrored(tensors),
            reduce_op, f"reduced by {algorithm!r}")
    return results, summed

  def _checked(self, position: int, value: Any, result: Any, reduce_op: Any,
               how: str) -> Any:
    """Returns the result of the batch's value, checked if that is wanted."""
    del position, value, reduce_op, how
    return result

  def _all_reduce_devices(self, value: Any,
                          destinations: Any) -> tuple[str, ...] | None:
    """Returns the devices of an all-reduce; None if it isn't one."""
    names = devices_lib.devices_of(value.values)
    if not all(names):
      names = self._meant_by(names)
    if len(names) < 2 or not all(names) or len(set(names)) < len(names):
      return None
    if destinations is value:
      return names
    targets = inputs.destination_devices(destinations)
    if names == targets or (len(names) == len(targets) and all(
        map(device_names.may_be_same, names, targets))):
      return names
    return None

  def _meant_by(self, names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names, of which some are empty, as far as they are known."""
    return names

  def _topology(self, names: tuple[str, ...]) -> topology_lib.Topology | None:
    """Returns how the devices are grouped; None to reduce on one of them."""
    return _topology_of(names)

  def _all_reduce_batch(self, reduce_op: Any, topology: topology_lib.Topology,
                        batch: Sequence[Sequence[Any]], options: Any
                        ) -> list[tuple[list[tf.Tensor], str]]:
    """All-reduces dense values, each given as one tensor per device.

    Returns:
      For each value its result likewise, and the algorithm that summed it.
    """
    tensors = [list(map(executor.as_tensor, values, topology.devices))
               for values in batch]
    sizes = tuple(map(inputs.size_of, tensors))
    plan = executor.checked_plan(sizes, topology, self._spec,
                                 self._packing_for(options), self._network,
                                 self._wire, self._backward_seconds)
    self._plans.add(plan, sizes, topology)
    if self._spec.plans and len(sizes) > 1 and not plan.is_pinned:
      self._warn_of_no_plan(sizes, topology)
    lost = (self._feedback.of_batch(plan.buckets, sizes, topology)
            if plan.wire and plan.wire.codec.has_state else None)
    results = executor.all_reduce(plan, tensors, topology, reduce_op,
                                  inputs.engine_options(options),
                                  self._composed,
                                  lost.encode if lost else None,
                                  note=self._emitted_batches.noting(
                                      plan, sizes, tensors, topology,
                                      self._network or self._spec.network))
    if lost is not None:
      results = lost.finished(results, topology.devices)
    algorithms = {i: bucket.algorithm for bucket in plan.buckets
                  for i in bucket.tensors}
    return [(result, algorithms[i]) for i, result in enumerate(results)]

  def _warn_of_no_plan(self, sizes: Sequence[planner.TensorSize],
                       topology: topology_lib.Topology) -> None:
    if self._warned_of_no_plan:
      return
    self._warned_of_no_plan = True
    logging.warning(
        "%s: a batch isn't pinned by %r, and goes by its spec %r: unlike the "
        "nearest of its plans, the batch %s. Save the plans again if it should "
        "be pinned; this is said once.", type(self).__name__, self._spec.file,
        str(self._spec), pinned.difference(pinned.Batch.of(sizes, topology),
                                           self._spec.plans))

  def _as_in_file(self, given: planner.Packing) -> planner.Packing:
    """Returns the packing of the spec's file, unless another was given."""
    measured, default = self._spec.packing, planner.Packing()
    if measured is None or given.small_max_bytes or (
        given.num_packs != self._DEFAULT_PACKS):
      return given
    if given.small_max_group == default.small_max_group:
      return measured
    return dataclasses.replace(measured, small_max_group=given.small_max_group)

  def _packing_for(self, options: Any) -> planner.Packing:
    cap = options.bytes_per_pack if options else 0
    return (dataclasses.replace(self._packing, cap=cap) if cap
            else self._packing)


@functools.lru_cache(maxsize=256)
def _topology_of(names: tuple[str, ...]) -> topology_lib.Topology:
  return topology_lib.Topology.from_devices(names)
