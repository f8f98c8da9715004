"""Says whether devices have what an algorithm needs, and if not, what."""

import dataclasses
from collections.abc import Callable

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib


@dataclasses.dataclass(frozen=True)
class Machine:
  """What only TensorFlow can tell.

  Attributes:
    has_kernel: whether it has an op's kernel for a kind of device.
    has_virtual_gpus: whether some GPUs are parts of one physical GPU.
  """

  has_kernel: Callable[[str, str], bool]
  has_virtual_gpus: Callable[[], bool]


def check(algorithm: registry.Algorithm, topology: topology_lib.Topology,
          machine: Machine) -> None:
  """Raises if the algorithm can't run on these devices."""
  reason = unmet(algorithm, topology, machine)
  if reason:
    raise errors.AlgorithmError(
        f"`algorithm` ({algorithm.name!r}) can't run on "
        f"{_brief(topology.devices)}: {reason}.")


def unmet(algorithm: registry.Algorithm, topology: topology_lib.Topology,
          machine: Machine) -> str | None:
  """Returns why the algorithm can't run here and what to do, or None."""
  if len(topology.devices) == 1:
    return None  # Nothing to do.
  several = len(topology.workers) > 1
  if algorithm.pair:
    intra, inter = algorithm.pair
    inside = any(len(ranks) > 1 for ranks in topology.workers)
    return (_unmet(intra, topology, machine, False) if inside else None) or (
        _unmet(inter, topology, machine, True) if several else None)
  return _unmet(algorithm, topology, machine, several)


def nccl_can_run(topology: topology_lib.Topology, machine: Machine) -> bool:
  """Whether "auto" may choose NCCL: on GPUs of a worker that it can run on."""
  name = "nccl" if len(topology.workers) == 1 else "nccl/ps"
  return topology.device_types == {"GPU"} and not unmet(
      registry.lookup(name), topology, machine)


def _unmet(algorithm: registry.Algorithm, topology: topology_lib.Topology,
           machine: Machine, several: bool) -> str | None:
  name, types = algorithm.name, algorithm.device_types
  if types and not topology.device_types <= types:
    return (f"{name} needs {' or '.join(sorted(types))} devices only; use "
            "'ps', 'xring' or 'rechd', which run on any device")
  if algorithm.single_worker and several:
    return (f"{name} can't leave its worker; use a pair such as "
            f"'{name}/xring', whose second part runs across workers")
  if algorithm.kernel and not all(
      machine.has_kernel(algorithm.kernel, kind)
      for kind in topology.device_types):
    return (f"this TensorFlow has no {algorithm.kernel} kernel for it; "
            "install a build that has, or use 'ps', 'xring' or 'rechd'")
  if algorithm.whole_devices and machine.has_virtual_gpus():
    return (f"{name} needs whole GPUs, and some here are virtual; use 'ps', "
            "'xring' or 'rechd'")
  return None


def _brief(names: tuple[str, ...]) -> str:
  shown = ", ".join(names[:3])
  return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
