"""The classes that a tf.distribute.MirroredStrategy takes."""

from tf_cdops.base import tensorflow_1
from tf_cdops.cross_device_ops.all_reduce import AllReduceCrossDeviceOps
from tf_cdops.cross_device_ops.multi_worker_all_reduce import (
    MultiWorkerAllReduce,
)
from tf_cdops.cross_device_ops.nccl_all_reduce import NcclAllReduce
from tf_cdops.cross_device_ops.reduction_to_one_device import (
    ReductionToOneDevice,
)
from tf_cdops.cross_device_ops.spmd_all_reduce import SpmdAllReduce

__all__ = [
    "AllReduceCrossDeviceOps",
    "MultiWorkerAllReduce",
    "NcclAllReduce",
    "ReductionToOneDevice",
    "SpmdAllReduce",
]


def __getattr__(name: str) -> object:
  raise tensorflow_1.missing(__name__, name)
