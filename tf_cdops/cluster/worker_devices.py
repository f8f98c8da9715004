"""Which of the workers' devices hold replicas: a choice by kind, pure."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tf_cdops.base import errors


@dataclasses.dataclass(frozen=True)
class Device:
  """A device as TensorFlow lists it."""

  name: str
  type: str

  @property
  def is_real(self) -> bool:
    """Whether ops can be placed on it: some only stand for a system."""
    return not (self.type.startswith("XLA_") or self.type.endswith("_SYSTEM"))


def check_device_type(device_type: Any) -> None:
  """Raises for what can't be a kind of device, before anyone connects."""
  if device_type is not None and (
      not isinstance(device_type, str) or not device_type):
    raise errors.DeviceError(
        f"`device_type` ({device_type!r}) must be a kind of device, such as "
        "'GPU', 'XPU' or 'CPU', or None for each worker's accelerators.")
  if device_type is not None and device_type.upper() == "TPU":
    raise errors.DeviceError(
        f"`device_type` ({device_type!r}) must be a kind that a "
        "MirroredStrategy can use; use tf.distribute.TPUStrategy for TPUs.")


def choose(devices: Mapping[str, Sequence[Device]],
           device_type: str | None = None) -> dict[str, list[str]]:
  """Returns the names of each worker's devices that hold replicas.

  Args:
    devices: all that each worker has, by what an error calls the worker.
    device_type: their kind; None for the one kind of each worker that isn't
      CPU, or its CPUs where there is none.

  Returns:
    At least one name for each worker, in the order of `devices`.

  Raises:
    DeviceError: if a worker has none of the kind, or several kinds and none
      is asked for.
  """
  kinds = {worker: _by_type(found) for worker, found in devices.items()}
  wanted = device_type.upper() if device_type is not None else None
  if wanted is not None and not all(wanted in have for have in kinds.values()):
    each = "; ".join(f"{worker} has {_count(have)}"
                     for worker, have in kinds.items())
    raise errors.DeviceError(
        f"`device_type` ({device_type!r}) must be a kind of device that every "
        f"worker has: {each}; choose one that all have, or start the workers "
        "where such devices are.")
  return {worker: have[wanted or _only_kind(worker, have)]
          for worker, have in kinds.items()}


def _only_kind(worker: str, have: Mapping[str, list[str]]) -> str:
  """Returns the kind of a worker's accelerators, or "CPU"."""
  kinds = [kind for kind in have if kind != "CPU"]
  if kinds == ["TPU"]:
    raise errors.DeviceError(
        f"`device_type` (None) must be given where a worker has TPUs, and "
        f"{worker} has {_count(have)}; use tf.distribute.TPUStrategy for them, "
        "or device_type='CPU'.")
  if len(kinds) > 1:
    choices = " or ".join(f"device_type={kind!r}" for kind in have
                          if kind != "TPU")
    raise errors.DeviceError(
        "`device_type` (None) must be given where a worker has several kinds "
        f"of accelerators, and {worker} has {_count(have)}; pass {choices}.")
  kind = kinds[0] if kinds else "CPU"
  if kind not in have:
    raise errors.DeviceError(
        f"`cluster` must have workers with devices, and {worker} has none; "
        "look at what it printed when it started.")
  return kind


def _by_type(devices: Sequence[Device]) -> dict[str, list[str]]:
  kinds: dict[str, list[str]] = {}
  for device in devices:
    if device.is_real:
      kinds.setdefault(device.type.upper(), []).append(device.name)
  return kinds


def _count(have: Mapping[str, list[str]]) -> str:
  return ", ".join(f"{len(names)} {kind}" for kind, names in
                   sorted(have.items())) or "none"
