"""SpmdStrategy: each worker runs the program, and gradients meet between."""

from typing import Any

import tensorflow as tf

from tf_cdops import cross_device_ops as cross_device_ops_lib
from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.execution import sparse as sparse_lib
from tf_cdops.planning import planner


class SpmdStrategy(tf.distribute.MultiWorkerMirroredStrategy):
  """TensorFlow's MultiWorkerMirroredStrategy, with which Keras 3 trains.

  Start the same program on each worker, with TF_CONFIG in its environment:
  `python -m tf_cdops launch --workers=2 train.py` does so on one machine.
  """

  def __init__(self, cluster_resolver: Any = None, *,
               all_reduce_spec: Any = "auto", wire: Any = None,
               bytes_per_pack: int | None = None, sparse: str = "gather",
               timeout: float | None = None,
               communication_options: Any = None):
    options = (communication_options
               or tf.distribute.experimental.CommunicationOptions())
    spec = planner.parse_all_reduce_spec(all_reduce_spec)
    checked_wire = registry.check_wire(wire)

    def make_ops(devices, num_workers):
      return cross_device_ops_lib.SpmdAllReduce(
          devices, num_workers, spec=spec, wire=checked_wire,
          bytes_per_pack=bytes_per_pack, sparse=sparse)

    tf.distribute.Strategy.__init__(self, tf_compat.SpmdExtended(
        self, cluster_resolver, options, make_ops))

  def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
    """As `tf.distribute.Strategy.reduce`, of structures of values, too.

    Args:
      reduce_op: tf.distribute.ReduceOp.SUM or MEAN, or their names.
      value: what replicas have, or a structure of that.
      axis: the dimension to reduce over, too. Scalars have none.
    """
    return tf.nest.map_structure(
        lambda one: super(SpmdStrategy, self).reduce(
            reduce_op, one, None if _is_scalar(one) else axis), value)


def _is_scalar(value: Any) -> bool:
  if isinstance(value, tf.distribute.DistributedValues):
    value = value.values[0]
  return tf.convert_to_tensor(value).shape.rank == 0
