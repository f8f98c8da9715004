"""multi_worker_strategy: a MirroredStrategy over the workers of a cluster."""

from typing import Any

import tensorflow as tf

from tf_cdops import cross_device_ops as cross_device_ops_lib
from tf_cdops.base import device_names
from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.cluster import addresses
from tf_cdops.cluster import connecting
from tf_cdops.cluster import first_batch
from tf_cdops.cluster import local
from tf_cdops.cluster import worker_devices


def multi_worker_strategy(
    cluster: Any, cross_device_ops: Any = None,
    devices_per_worker: int | None = None, *,
    device_type: str | None = None,
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
    devices_per_worker: how many such devices each worker must have; None for
      as many as it has.
    device_type: the kind of devices that hold replicas, such as "GPU", a
      plugin's "XPU" or "CPU". If None, a worker's accelerators, whatever their
      kind, or its CPUs where it has none; with accelerators of several kinds,
      it must be given.
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
  worker_devices.check_device_type(device_type)
  errors.check_duration("timeout", timeout)
  resolved = addresses.resolve(cluster)
  connecting.connect(resolved, timeout)
  by_worker = _devices(resolved, device_type, devices_per_worker)
  devices = [name for names in by_worker for name in names]
  ops = cross_device_ops
  if ops is None:
    ops = cross_device_ops_lib.MultiWorkerAllReduce(
        all_reduce_spec="auto", network=cluster.link
        if isinstance(cluster, local.LocalCluster) else None)
  return first_batch.accept_uneven_batches(tf_compat.mirrored_strategy_over(
      devices, ops, by_worker if input_per_worker else None))


def _devices(cluster: addresses.Cluster, device_type: str | None,
             expected: int | None) -> list[list[str]]:
  """Returns the names of each worker's devices that hold replicas."""
  found: dict[str, list[worker_devices.Device]] = {
      task.name: [] for task in cluster.workers}
  for device in tf.config.list_logical_devices():
    parsed = device_names.parse(device.name)
    key = f"/job:{parsed.job}/replica:0/task:{parsed.task or 0}"
    if key in found:
      found[key].append(
          worker_devices.Device(device.name, device.device_type))
  chosen = worker_devices.choose(
      {str(task): found[task.name] for task in cluster.workers}, device_type)
  for task, names in chosen.items():
    if expected is not None and len(names) != expected:
      raise errors.DeviceError(
          f"`devices_per_worker` ({expected}) must be what each worker has, "
          f"and {task} has {len(names)}: {', '.join(names)}.")
  return list(chosen.values())
