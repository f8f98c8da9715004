"""NcclAllReduce: NCCL where it can run, one device where it can't."""

import functools

from absl import logging

from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.cross_device_ops import all_reduce
from tf_cdops.execution import executor
from tf_cdops.registry import requirements


class NcclAllReduce(all_reduce.AllReduceCrossDeviceOps):
  """All-reduces with NVIDIA's NCCL among the GPUs of one worker.

  Where NCCL can't run (no GPU, no kernel in this TensorFlow, virtual GPUs,
  CPUs among the devices, several workers) and where the reduction isn't an
  all-reduce, it does what `ReductionToOneDevice` does, and says why once.

  >>> strategy = tf.distribute.MirroredStrategy(
  ...     ["CPU:0", "CPU:1"], cross_device_ops=tf_cdops.NcclAllReduce())
  """

  def __init__(self, num_packs: int = 1, *, sparse: str = "gather",
               on_nonfinite: str | None = None):
    """Initializes with a way of packing.

    Args:
      num_packs: a non-negative integer. The number of packs to join values
        into. If zero, no packing will be done.
      sparse: see `AllReduceCrossDeviceOps`.
      on_nonfinite: see `AllReduceCrossDeviceOps`.

    Raises:
      ValueError: if `num_packs` is negative.
    """
    super().__init__("nccl", num_packs, sparse=sparse,
                     on_nonfinite=on_nonfinite)
    self._warned = False

  def _settings(self) -> list[str]:
    return [f"num_packs={self._packing.num_packs}", f"sparse={self._sparse!r}",
            *self._guard_settings()]

  def _topology(self, names: tuple[str, ...]) -> topology_lib.Topology | None:
    reason = _why_not(names)
    if not reason:
      return super()._topology(names)
    if not self._warned:
      self._warned = True
      logging.warning("NcclAllReduce reduces on one device instead: %s.",
                      reason)
    return None


@functools.lru_cache(maxsize=256)  # It is asked for every value of a batch.
def _why_not(names: tuple[str, ...]) -> str | None:
  return requirements.unmet(
      registry.lookup("nccl"), topology_lib.Topology.from_devices(names),
      executor.machine())
