"""multi_worker_strategy: a MirroredStrategy over the workers of a cluster."""

import collections
from typing import Any

import tensorflow as tf

from tf_cdops import _tf_compat
from tf_cdops import cross_device_ops as cross_device_ops_lib
from tf_cdops import device_names
from tf_cdops import errors
from tf_cdops.cluster import addresses
from tf_cdops.cluster import connecting


def multi_worker_strategy(
    cluster: Any, cross_device_ops: Any = None,
    devices_per_worker: int | None = None, *,
    input_per_worker: bool = False,
    timeout: float = 60.0) -> tf.distribute.MirroredStrategy:
  """Returns a MirroredStrategy whose replicas are all workers' devices.

  This process is the client: it builds the model and drives the steps, and the
  workers, which run `python -m tf_cdops worker`, compute. Call it again after
  a worker was lost and restarted, having let go of the old strategy and all
  that was made under it: its variables are gone.

  Args:
    cluster: the workers: a dict from job to addresses, a tf.train.ClusterSpec,
      a `LocalCluster` or any tf.distribute.cluster_resolver.ClusterResolver.
      Tasks of the jobs "worker" and "chief" hold replicas.
    cross_device_ops: how gradients travel; `MultiWorkerAllReduce` with the
      spec "auto" if None.
    devices_per_worker: how many devices each worker must have; None for as
      many as it has: its GPUs, or its CPUs where it has none.
    input_per_worker: whether `distribute_datasets_from_function` runs a
      pipeline on each worker's host, so that the first is no bottleneck. Each
      then gets an InputContext and must take its own share of the data; `fit`
      with such a strategy would see examples twice.
    timeout: seconds within which every worker must answer.

  Returns:
    The strategy. Save and restore tf.train.Checkpoint inside its scope.

  Raises:
    ValueError: for a wrong description, or a worker with other devices.
    ClusterError: naming the workers that don't answer in time.
  """
  resolved = addresses.resolve(cluster)
  connecting.connect(resolved, timeout)
  by_worker = _devices(resolved, devices_per_worker)
  devices = [name for names in by_worker.values() for name in names]
  ops = (cross_device_ops_lib.MultiWorkerAllReduce(all_reduce_spec="auto")
         if cross_device_ops is None else cross_device_ops)
  return _tf_compat.mirrored_strategy_over(
      devices, ops, list(by_worker.values()) if input_per_worker else None)


def _devices(cluster: addresses.Cluster,
             expected: int | None) -> dict[str, list[str]]:
  """Returns each worker's devices: GPUs, or CPUs where there are none."""
  found: dict[str, dict[str, list[str]]] = collections.defaultdict(
      lambda: collections.defaultdict(list))
  for device in tf.config.list_logical_devices():
    parsed = device_names.parse(device.name)
    key = f"/job:{parsed.job}/replica:0/task:{parsed.task or 0}"
    found[key][device.device_type].append(device.name)
  chosen = {}
  for task in cluster.workers:
    kinds = found[task.name]
    names = kinds["GPU"] or kinds["CPU"]
    if not names or (expected is not None and len(names) != expected):
      raise errors.DeviceError(
          f"`devices_per_worker` ({expected}) must be what each worker has, "
          f"and {task} has {len(names)}: {', '.join(names) or 'none'}.")
    chosen[task.name] = names
  return chosen
