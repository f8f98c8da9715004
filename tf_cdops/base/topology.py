"""Which devices there are, and which of them share a worker."""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Sequence

from tf_cdops.base import device_names
from tf_cdops.base import errors


@dataclasses.dataclass(frozen=True)
class Topology:
  """Devices in replica order, grouped by worker.

  Attributes:
    devices: the name of each replica's device.
    workers: for each worker, the replicas on it, as positions in `devices`.
    hosts: for each worker, the name of its CPU.
  """

  devices: tuple[str, ...]
  workers: tuple[tuple[int, ...], ...]
  hosts: tuple[str, ...]

  @classmethod
  def from_devices(
      cls, names: Iterable[str],
      workers: Sequence[Sequence[str]] | None = None) -> "Topology":
    """Groups devices by the worker in their names, (job, replica, task).

    Args:
      names: device names, full or partial, in replica order.
      workers: declares virtual workers instead: groups of these names, so
        that one machine's devices can stand for several machines.

    Returns:
      The topology.
    """
    parsed = [device_names.parse(name, "names") for name in names]
    if not parsed:
      raise errors.DeviceError("`names` (none) must name at least one device.")
    devices = tuple(str(device) for device in parsed)
    # A job that some names leave out is the one that the others name.
    jobs = {device.job for device in parsed if device.job is not None}
    default = device_names.DeviceName(
        jobs.pop() if len(jobs) == 1 else None, 0, 0)
    full = [device.filled(default) for device in parsed]
    _check_distinct([str(device) for device in full], "names")
    if workers is not None:
      return cls._virtual(devices, workers)
    ranks = collections.defaultdict(list)
    for rank, device in enumerate(full):
      ranks[device.worker].append(rank)
    hosts = tuple(_host(parsed[members[0]]) for members in ranks.values())
    return cls(devices, tuple(map(tuple, ranks.values())), hosts)

  @classmethod
  def grid(cls, workers: int, devices_per_worker: int, *,
           device_type: str = "GPU") -> "Topology":
    """Returns `workers` workers with `devices_per_worker` devices each."""
    for name, count in (("workers", workers),
                        ("devices_per_worker", devices_per_worker)):
      errors.check_whole_number(name, count, 1, error=errors.DeviceError)
    return cls.from_devices(
        f"/job:worker/replica:0/task:{w}/device:{device_type}:{d}"
        for w in range(workers) for d in range(devices_per_worker))

  @classmethod
  def _virtual(cls, devices: tuple[str, ...],
               workers: Sequence[Sequence[str]]) -> "Topology":
    groups = [[str(device_names.parse(name, "workers")) for name in group]
              for group in workers]
    declared = [name for group in groups for name in group]
    _check_distinct(declared, "workers")
    if set(declared) != set(devices) or not all(groups):
      raise errors.DeviceError(
          f"`workers` ({declared}) must group exactly the devices in `names` "
          f"({list(devices)}), at least one in each group.")
    ranks = tuple(tuple(sorted(devices.index(name) for name in group))
                  for group in groups)
    # A virtual worker of CPUs has a host of its own: its first device.
    hosts = tuple(
        devices[group[0]] if device_names.parse(devices[group[0]]).type == "CPU"
        else _host(device_names.parse(devices[group[0]])) for group in ranks)
    return cls(devices, ranks, hosts)

  @functools.cached_property
  def device_types(self) -> frozenset[str]:
    """The kinds of devices here, such as {"GPU"}; "CPU" where none is named."""
    return frozenset(
        device_names.parse(name).type or "CPU" for name in self.devices)

  @property
  def is_one_cpu(self) -> bool:
    """Whether these are CPUs of one worker, which share cores and memory."""
    return len(self.workers) == 1 and self.device_types == {"CPU"}


def _host(device: device_names.DeviceName) -> str:
  return str(dataclasses.replace(device, type="CPU", index=0))


def _check_distinct(names: Sequence[str], argument: str) -> None:
  twice = [name for name, count in collections.Counter(names).items()
           if count > 1]
  if twice:
    raise errors.DeviceError(
        f"`{argument}` ({', '.join(names)}) must be distinct, and {twice[0]} "
        "is there twice.")
