"""The base of classes that notice what isn't finite."""

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import tf_compat
from tf_cdops.base import topology as topology_lib
from tf_cdops.cross_device_ops import base
from tf_cdops.execution import devices
from tf_cdops.execution import emitted
from tf_cdops.execution import finite_sums
from tf_cdops.execution import nonfinite
from tf_cdops.execution import tensor_names


class GuardedCrossDeviceOps(base.CheckedCrossDeviceOps):
  """Knows what tensors are called, and what to do if one isn't finite."""

  def __init__(self, on_nonfinite: str | None = None):
    super().__init__()
    self._on_nonfinite = nonfinite.check_mode(on_nonfinite)
    self._looks_at_single_values = on_nonfinite is not None
    self._names = tensor_names.TensorNames()
    self._emitted_batches = emitted.Emitted()

  def emitted_batches(self) -> list[tuple[emitted.Batch,
                                          tuple[str | None, ...]]]:
    """Returns the batches of all graphs that live, with their tensors' names.

    For `tf_cdops.Timeline`, which meets their ops in a profile.
    """
    return [(batch, self._names.of_batch([
        tf.TensorSpec(shape) for shape in batch.shapes]))
            for batch in self._emitted_batches.batches()]

  def name_tensors(self, variables: Iterable[Any]) -> bool:
    """Lets messages name variables, where they would say a tensor's position.

    A batch is known by its shapes. `tf_cdops.keras.NameGradients` does this
    for a Keras model. Functions that are traced already don't learn of it.

    Args:
      variables: those whose gradients are reduced together, in that order.

    Returns:
      Whether a function that is traced anew would say more.

    Raises:
      ValueError: if something isn't a variable.
    """
    return self._names.add(variables) and self._on_nonfinite is not None

  def reduce_implementation(self, reduce_op: Any, per_replica_value: Any,
                            destinations: Any, options: Any) -> Any:
    return self.batch_reduce_implementation(
        reduce_op, [(per_replica_value, destinations)], options)[0]

  def batch_reduce_implementation(self, reduce_op: Any,
                                  value_destination_pairs: Any,
                                  options: Any) -> list[Any]:
    pairs = list(value_destination_pairs)
    results, summed = self._reduce_batch(reduce_op, pairs, options)
    if labels := self._labels(pairs):
      for (places, _), which in _by_devices(pairs, results).items():
        guard = self._guard(places, self._grouped_for_names(places),
                            [labels[i] for i in which])
        for i, parts in zip(which, guard.answered(
            [summed[i] for i in which], [parts_of(results[i]) for i in which],
            reduce_op), strict=True):
          results[i] = tf_compat.mirrored(parts)
    return results

  def _reduce_batch(self, reduce_op: Any, pairs: Sequence[tuple[Any, Any]],
                    options: Any) -> tuple[list[Any], list[Sequence[Any]]]:
    """Reduces a batch, whatever its numbers are.

    Args:
      reduce_op: tf.distribute.ReduceOp.SUM or MEAN.
      pairs: values and their destinations.
      options: the caller's.

    Returns:
      The results, and of each what was summed, one value per replica.
    """
    raise NotImplementedError

  def _guard(self, places: Sequence[str],
             topology: topology_lib.Topology | None, tensors: Sequence[str],
             **kwargs: Any) -> nonfinite.Guard:
    """Returns what answers for a batch on these devices."""
    assert self._on_nonfinite is not None
    replicas = ([f"replica {i}" for i in range(len(places))]
                if topology is None else tensor_names.replica_labels(topology))
    return nonfinite.Guard(self._on_nonfinite, places, replicas, tensors,
                           **kwargs)

  def _guard_settings(self) -> list[str]:
    return ([f"on_nonfinite={self._on_nonfinite!r}"] if self._on_nonfinite
            else [])

  def _grouped_for_names(self, names: tuple[str, ...]
                         ) -> topology_lib.Topology | None:
    """Returns which devices share a worker, for messages; None if unknown."""
    if not all(names) or len(set(names)) < len(names):
      # Of values that lie elsewhere, in eager code, replicas are still known.
      count, names = len(names), devices.of_strategy()
      if len(names) != count:
        return None
    return topology_lib.Topology.from_devices(names)

  def _labels(self, pairs: Sequence[tuple[Any, Any]]) -> list[str]:
    """Returns what messages call each tensor; [] if there will be none."""
    if self._on_nonfinite is None:
      return []
    batch = [value.values[0] for value, _ in pairs]
    return tensor_names.labels(batch, [
        tensor_names.name_of(destination)
        if name is None and isinstance(destination, tf.Variable) else name
        for name, (_, destination) in zip(
            self._names.of_batch(batch), pairs, strict=True)])


def _by_devices(
    pairs: Sequence[tuple[Any, Any]], results: Sequence[Any]
) -> dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]]:
  """Returns which values can be infinite, by devices, and by the results'."""
  groups = collections.defaultdict(list)
  for i, ((value, _), result) in enumerate(zip(pairs, results, strict=True)):
    if finite_sums.can_be_infinite(value.values[0].dtype):
      groups[devices.devices_of(value.values),
             tuple(map(devices.device_of, parts_of(result)))].append(i)
  return groups


def parts_of(result: Any) -> Sequence[Any]:
  """Returns what each device has of a result."""
  if isinstance(result, tf.distribute.DistributedValues):
    parts: Sequence[Any] = result.values
    return parts
  return [result]
