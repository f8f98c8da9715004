"""Where to measure: devices, and how to make a strategy over them."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_cdops import cluster as cluster_lib
from tf_cdops import cost
from tf_cdops.base import device_names
from tf_cdops.base import errors
from tf_cdops.base import rates
from tf_cdops.base import tf_compat
from tf_cdops.base import topology as topology_lib
from tf_cdops.cluster import addresses
from tf_cdops.cluster import probing

_ANSWER_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Site:
  """Devices to measure on, by their full names in replica order.

  Attributes:
    devices: their names.
    bandwidth: the rate of each worker's cable, if it has one of its own.
    is_elsewhere: whether other machines may have them, whose memory isn't
      known here.
    link: the one between workers, if it is known.
    cluster: the workers, if they were started for this.
  """

  devices: tuple[str, ...]
  bandwidth: str | None = None
  is_elsewhere: bool = False
  link: cost.Link | None = None
  cluster: cluster_lib.LocalCluster | None = None

  @property
  def topology(self) -> topology_lib.Topology:
    return topology_lib.Topology.from_devices(self.devices)

  @property
  def is_local(self) -> bool:
    """Whether all devices are this process's own."""
    return all(device_names.parse(name).job == "localhost"
               for name in self.devices)

  def strategy(self, cross_device_ops: Any) -> tf.distribute.MirroredStrategy:
    """Returns a strategy; `cross_device_ops` is None for TensorFlow's own."""
    if cross_device_ops is None:
      return _default_strategy(Site(self.devices))  # Whatever the bandwidth.
    return self._strategy(cross_device_ops)

  def _strategy(self, cross_device_ops: Any) -> tf.distribute.MirroredStrategy:
    if self.is_local:
      return tf.distribute.MirroredStrategy(
          list(self.devices), cross_device_ops=cross_device_ops)
    return tf_compat.mirrored_strategy_over(
        self.devices, cross_device_ops, None)

  def with_bandwidth(self, bandwidth: str) -> "Site":
    """Changes the rate of the workers' cables; returns the site since then."""
    assert self.cluster is not None
    self.cluster.set_bandwidth(bandwidth)
    return dataclasses.replace(self, bandwidth=bandwidth,
                               link=self.cluster.link)

  def least_seconds(self, num_bytes: int) -> float | None:
    """Returns what no all-reduce can beat; None without cables between workers.

    Of n bytes, some of W workers must send 2n(W-1)/W.
    """
    if self.bandwidth is None:
      return None
    link = cost.Link(self.bandwidth, 0,
                     rates.parse(self.bandwidth, "bandwidth"))
    network = cost.Network(link, link)
    return cost.lower_bound(self.topology, num_bytes, network).across or None

  def __str__(self) -> str:
    topology = self.topology
    kinds = " and ".join(sorted(topology.device_types))
    text = f"{len(self.devices)} {kinds} devices"
    workers = len(topology.workers)
    if self.bandwidth is not None:
      return f"{text} of {workers} workers with cables of {self.bandwidth}"
    return text if workers == 1 else f"{text} of {workers} workers"


@functools.cache
def _default_strategy(site: Site) -> tf.distribute.MirroredStrategy:
  """Returns the one strategy with TensorFlow's default ops.

  Each such strategy numbers its collectives from 1. Those of a second one in
  the process would be taken for the first one's, and fail for good if shapes
  or the number of devices differ. So for sites of several sizes, start a
  process each.
  """
  return site._strategy(None)


def configure_cpus(count: int) -> None:
  """Divides this process's CPU into logical devices, once a process.

  Must come before anything that makes TensorFlow fix its devices, such as
  building a model.
  """
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * count)


def local(device_type: str, count: int | None = None) -> Site:
  """Returns the first `count` devices of this process; None for all."""
  names = [tf_compat.full_device_name(device.name)
           for device in tf.config.list_logical_devices(device_type)]
  if not names or (count is not None and count > len(names)):
    raise errors.InputError(
        f"`devices` ({count or 'all'}) must be devices that are here, and "
        f"there are {len(names)} of type {device_type}.")
  return Site(tuple(names[:count]))


@contextlib.contextmanager
def local_cluster(workers: int, devices_per_worker: int,
                  bandwidth: str | None = None) -> Iterator[Site]:
  """Starts as many TensorFlow servers on this machine, for a while."""
  with cluster_lib.LocalCluster(workers, devices_per_worker,
                                bandwidth=bandwidth) as cluster:
    strategy = cluster_lib.multi_worker_strategy(cluster)
    yield Site(tuple(strategy.extended.worker_devices), bandwidth,
               link=cluster.link, cluster=cluster)


def running_cluster(text: str, devices_per_worker: int | None = None,
                    device_type: str | None = None) -> Site:
  """Connects to workers that run already; starts and stops none.

  Args:
    text: their addresses, or a cluster as JSON, that of TF_CONFIG too. This
      process is a client whatever task is named there.
    devices_per_worker: how many each must have; None for as many as it has.
    device_type: their kind; None for accelerators, or CPUs if there are none.

  Raises:
    ClusterError: at once, naming the workers that don't answer.
  """
  described = addresses.resolve(addresses.parse_text(text)).as_dict()
  cluster = addresses.resolve({job: tasks for job, tasks in described.items()
                               if job in addresses.WORKER_JOBS})
  silent = probing.silent(cluster.workers, _ANSWER_SECONDS)
  if silent:
    each = "; ".join(f"{task} {why}" for task, why in silent.items())
    raise errors.ClusterError(
        f"`cluster` must have workers that answer within {_ANSWER_SECONDS:g} "
        f"s: {each}. Start them with `python -m tf_cdops worker`, or mend the "
        "addresses.")
  strategy = cluster_lib.multi_worker_strategy(
      cluster, None, devices_per_worker, device_type=device_type)
  return Site(tuple(strategy.extended.worker_devices), is_elsewhere=True)
