"""MultiWorkerAllReduce: all-reduce by a spec, over one worker or many."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from absl import logging

from tf_cdops import registry
from tf_cdops.base import device_names
from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.cross_device_ops import all_reduce
from tf_cdops.cross_device_ops import guarded
from tf_cdops.cross_device_ops import reduction_to_one_device
from tf_cdops.execution import devices as devices_lib
from tf_cdops.execution import self_checking
from tf_cdops.fabric import tensorflow as tensorflow_fabric
from tf_cdops.planning import planner


class MultiWorkerAllReduce(all_reduce.AllReduceCrossDeviceOps):
  """All-reduces by size: a spec chooses the algorithm for each tensor.

  >>> strategy = tf.distribute.MirroredStrategy(
  ...     ["CPU:0", "CPU:1", "CPU:2"],
  ...     cross_device_ops=tf_cdops.MultiWorkerAllReduce(
  ...         all_reduce_spec="xring:64k:pscpu/pscpu#2"))
  """

  _DEFAULT_PACKS = 0

  def __init__(self, worker_devices: Sequence[str] | None = None,
               num_gpus_per_worker: int | None = None,
               all_reduce_spec: Any = ("pscpu/pscpu", 2, -1),
               num_packs: int = 0, agg_small_grads_max_bytes: int = 0,
               agg_small_grads_max_group: int = 10, *,
               topology: topology_lib.Topology | None = None,
               sparse: str = "gather", reproducible: bool = False,
               self_check: bool = False, network: Any = None,
               wire: Any = None, wire_scope: str = "across",
               on_nonfinite: str | None = None,
               backward_seconds: float | None = None):
    """Initializes the all-reduce algorithm.

    Args:
      worker_devices: device strings of the workers that take part, such as
        "/job:worker/task:0"; None to read them off the values' devices.
      num_gpus_per_worker: number of GPUs of each worker; None likewise. What
        the values are on counts: if that is another number, a warning says so.
      all_reduce_spec: a text, a tuple (algorithm, shards, limit), a named
        tuple or a list of tuples. Tensors of up to `limit` bytes use that
        algorithm in that many shards; limits rise, and the last is -1. "auto"
        chooses itself, and "@file.json" reads a spec from a file, with its
        packing, links and plans: see `AllReduceCrossDeviceOps`.
      num_packs: see `AllReduceCrossDeviceOps`.
      agg_small_grads_max_bytes: see `AllReduceCrossDeviceOps`.
      agg_small_grads_max_group: see `AllReduceCrossDeviceOps`.
      topology: the devices and how they are grouped, if their names don't
        say; declares virtual workers. Inside a tf.function values may have no
        device; then the strategy's devices are meant, or else these.
      sparse: see `AllReduceCrossDeviceOps`.
      reproducible: every element is summed in one place in the order of
        replicas, so that results don't depend, to the last bit, on packing,
        shards or sizes. A spec that can't do so is an error.
      self_check: every result, sparse ones too, is compared with a plain sum
        on one device; a difference beyond rounding raises
        tf.errors.InvalidArgumentError, naming the tensor and the algorithm.
        Infinities and NaNs must be where the terms put them; only where
        finite terms overflow, which depends on their order, nothing is said.
        For hunting faults: it doubles the work.
      network: the links, by which "auto" chooses: a `tf_cdops.Network`, or
        the name of the link between workers (between devices, where there is
        one worker), such as "10gbe", or "@links.json", as `tf_cdops doctor`
        measures them. None for those of the spec's file, or else what such
        devices commonly have.
      wire: see `AllReduceCrossDeviceOps`.
      wire_scope: see `AllReduceCrossDeviceOps`.
      on_nonfinite: see `AllReduceCrossDeviceOps`.
      backward_seconds: how long the backward pass takes, as
        `tf_cdops.Timeline` measures it. "auto" cuts packs between workers so
        that the first leave while gradients are still being computed. None
        for about as long as the all-reduce takes; 0 to cut nothing for it.

    Raises:
      ValueError: for a wrong spec, device or number.
    """
    super().__init__(planner.parse_all_reduce_spec(all_reduce_spec),
                     num_packs, agg_small_grads_max_bytes,
                     agg_small_grads_max_group, sparse=sparse, wire=wire,
                     wire_scope=wire_scope, on_nonfinite=on_nonfinite)
    self._worker_devices = _check_worker_devices(worker_devices)
    self._num_gpus = (None if num_gpus_per_worker is None else
                      errors.check_whole_number("num_gpus_per_worker",
                                                num_gpus_per_worker, 0))
    if topology is not None and not isinstance(topology,
                                               topology_lib.Topology):
      raise errors.InputError(
          f"`topology` ({topology!r}) must be a tf_cdops.Topology.")
    if topology is not None and worker_devices is not None:
      raise errors.InputError(
          "`topology` and `worker_devices` both group the devices; give one.")
    errors.check_bool("reproducible", reproducible)
    self._self_check = errors.check_bool("self_check", self_check)
    if self._wire and (reproducible or self_check):
      raise errors.InputError(
          f"`wire` ({str(self._wire)!r}) rounds, so that results depend on who "
          "sums and differ from plain sums: "
          f"`{'reproducible' if reproducible else 'self_check'}` must be "
          "False with it.")
    self._declared = topology
    self._counted: set[tuple[str, ...]] = set()
    self._network = given_links.check(network)
    self._backward_seconds = errors.check_seconds("backward_seconds",
                                                  backward_seconds)
    if reproducible:
      self._check_in_order()
      self._composed = (registry.in_order,)
      self._one_device = reduction_to_one_device.ReductionToOneDevice(
          accumulation_fn=tensorflow_fabric.sum_in_order)

  def _settings(self) -> list[str]:
    settings = super()._settings()
    settings[0] = f"all_reduce_spec={settings[0]}"
    extra = {"worker_devices": self._worker_devices,
             "num_gpus_per_worker": self._num_gpus,
             "topology": self._declared,
             "reproducible": bool(self._composed) or None,
             "self_check": self._self_check or None,
             "network": self._network or self._spec.network,
             "backward_seconds": self._backward_seconds}
    return settings + [f"{name}={value!r}" for name, value in extra.items()
                       if value is not None]

  def _check_in_order(self) -> None:
    if self._spec.is_auto:
      self._spec = self._spec.with_lines(planner.parse_all_reduce_spec("ps"))
    for name in self._spec.algorithms:
      if not registry.lookup(name).in_order:
        raise errors.SpecError(
            f"`reproducible` (True) must have algorithms that sum in the order "
            f"of replicas, and {name!r} in `all_reduce_spec` doesn't; use "
            "'ps', 'pscpu', 'psgpu' or 'auto'.")

  def _meant_by(self, names: tuple[str, ...]) -> tuple[str, ...]:
    if self._declared is None:
      return names
    declared = self._declared.devices
    if len(declared) != len(names):
      raise errors.DeviceError(
          f"`topology` has {len(declared)} devices and the value {len(names)} "
          "replicas, which have no device of their own here; there must be "
          "one replica per device.")
    for name in declared:
      devices_lib.check_present(name, "topology")
    return tuple(name or meant
                 for name, meant in zip(names, declared, strict=True))

  def _topology(self, names: tuple[str, ...]) -> topology_lib.Topology:
    topology = _grouped(names, self._declared, self._worker_devices)
    if self._num_gpus is not None and names not in self._counted:
      self._counted.add(names)
      _warn_of_other_gpus(topology, self._num_gpus)
    return topology

  def _grouped_for_names(self, names: tuple[str, ...]
                         ) -> topology_lib.Topology | None:
    if self._declared is not None and len(names) == len(
        self._declared.devices):
      return self._declared
    return super()._grouped_for_names(names)

  def _checked(self, position: int, value: Any, result: Any, reduce_op: Any,
               how: str) -> Any:
    if not self._self_check:
      return result
    return tf_compat.mirrored(self_checking.verified(
        value.values, guarded.parts_of(result), reduce_op,
        f"tensor {position}", how))


def _check_worker_devices(names: Any) -> tuple[str, ...] | None:
  if names is None:
    return None
  if isinstance(names, str) or not isinstance(names, Sequence) or not names:
    raise errors.DeviceError(
        f"`worker_devices` ({names!r}) must be a list of device strings, one "
        "per worker, such as ['/job:worker/task:0', '/job:worker/task:1'].")
  parsed = [device_names.parse(name, "worker_devices") for name in names]
  if len(set(parsed)) < len(parsed):
    raise errors.DeviceError(
        f"`worker_devices` ({list(names)}) must be distinct.")
  return tuple(names)


@functools.lru_cache(maxsize=256)
def _grouped(names: tuple[str, ...], declared: topology_lib.Topology | None,
             worker_devices: tuple[str, ...] | None) -> topology_lib.Topology:
  """Returns how devices are grouped, checked against what the user said."""
  if declared:
    if len(declared.devices) != len(names) or not all(
        map(device_names.may_be_same, declared.devices, names)):
      raise errors.DeviceError(
          f"`topology` has the devices {list(declared.devices)}, and the "
          f"values are on {list(names)}; they must be the same, in order.")
    return topology_lib.Topology(names, declared.workers, declared.hosts)
  groups = None
  if worker_devices:
    groups = [[name for name in names
               if _has(device_names.parse(worker), device_names.parse(name))]
              for worker in worker_devices]
    if not all(groups) or sorted(
        itertools.chain(*groups)) != sorted(names):
      raise errors.DeviceError(
          f"`worker_devices` ({list(worker_devices)}) must be the workers of "
          f"the values' devices, which are {list(names)}.")
  return topology_lib.Topology.from_devices(names, groups)


def _has(worker: device_names.DeviceName,
         device: device_names.DeviceName) -> bool:
  """Whether a device is on a worker, for which its CPU's name may stand."""
  if worker.type == "CPU" and device.type != "CPU":
    worker = dataclasses.replace(worker, type=None, index=None)
  return device_names.may_be_same(str(worker), str(device))


def _warn_of_other_gpus(topology: topology_lib.Topology,
                        num_gpus: int) -> None:
  """Says how many GPUs there are, if not `num_gpus` on each worker."""
  found = [sum(device_names.parse(topology.devices[rank]).type == "GPU"
               for rank in ranks) for ranks in topology.workers]
  if any(count != num_gpus for count in found):
    logging.warning(
        "MultiWorkerAllReduce goes on with the GPUs it found, of each worker "
        "%s, which isn't `num_gpus_per_worker` (%d): the devices are %s.",
        found, num_gpus, list(topology.devices))
