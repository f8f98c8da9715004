"""The classes that a tf.distribute.MirroredStrategy takes."""

from tf_cdops.cross_device_ops.reduction_to_one_device import (
    ReductionToOneDevice,
)

__all__ = ["ReductionToOneDevice"]
