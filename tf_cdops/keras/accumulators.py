"""Where a replica adds up its gradients: apart from all other replicas."""

from typing import Any

import tensorflow as tf

from tf_cdops.base import tf_compat


class Accumulator(tf_compat.SavedAsTensor):
  """The sum so far of one variable's gradients, another on each replica.

  It is saved as one tensor with a row for each replica, so that an
  accumulation goes on to the last bit. Where there is another number of
  replicas then, the first one gets the sum of all.
  """

  def __init__(self, variable: Any, name: str):
    """Initializes; in a strategy's scope or on a replica.

    Args:
      variable: the weight.
      name: for errors and traces.
    """
    self._strategy = tf.distribute.get_strategy()
    # By float8's own rule; see Keras' `overwrite_with_gradient`.
    self._takes_largest = getattr(variable, "overwrite_with_gradient", False)
    # Of ON_READ variables each replica has its own, and changes it alone.
    self._sum = tf.Variable(
        lambda: tf.zeros(variable.shape, variable.dtype), trainable=False,
        name=name, synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM)

  def add(self, gradient: Any) -> None:
    """Adds this replica's gradient; a sparse one becomes dense."""
    gradient = tf.cast(tf.convert_to_tensor(gradient), self._sum.dtype)
    if self._takes_largest:
      self._sum.assign(tf.maximum(self._sum.read_value(), gradient))
    else:
      self._sum.assign_add(gradient)

  def take(self, steps: int) -> tf.Tensor:
    """Returns this replica's mean over so many steps, and begins anew."""
    total = self._sum.read_value()
    self._sum.assign(tf.zeros_like(total))
    return total if self._takes_largest else total / tf.cast(steps, total.dtype)

  def to_tensor(self) -> tf.Tensor:
    """Returns every replica's, in their order; every program must ask."""
    return self._strategy.gather(
        self._strategy.run(lambda: self._sum.read_value()[tf.newaxis]), axis=0)

  def from_tensor(self, saved: tf.Tensor) -> None:
    """Gives every replica its own, of what `to_tensor` returned."""
    saved = tf.convert_to_tensor(saved)
    replicas = self._strategy.num_replicas_in_sync

    def restore() -> None:
      replica = tf.distribute.get_replica_context().replica_id_in_sync_group
      self._sum.assign(tf.cond(
          tf.equal(tf.shape(saved)[0], replicas), lambda: saved[replica],
          lambda: (tf.reduce_sum(saved, axis=0)
                   * tf.cast(tf.equal(replica, 0), saved.dtype))))

    self._strategy.run(restore)

