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
    rows = []
    for local in self._locals():
      with tf.device(local.device):
        rows.append(local.read_value()[tf.newaxis])
    return self._strategy.gather(
        tf_compat.PerReplica(tuple(rows)) if len(rows) > 1 else rows[0], axis=0)

  def from_tensor(self, saved: tf.Tensor) -> None:
    """Gives every replica its own, of what `to_tensor` returned."""
    saved = tf.convert_to_tensor(saved)
    is_same = tf.equal(tf.shape(saved)[0], self._strategy.num_replicas_in_sync)
    for local, replica in zip(self._locals(), self._replicas(), strict=True):
      with tf.device(local.device):
        local.assign(tf.cond(
            is_same, lambda replica=replica: saved[replica],
            lambda replica=replica: (
                tf.zeros_like(saved[0]) if replica
                else tf.reduce_sum(saved, axis=0))))

  def _locals(self) -> tuple[tf.Variable, ...]:
    """Returns the sums of this program's replicas."""
    return self._strategy.experimental_local_results(self._sum)

  def _replicas(self) -> list[int]:
    """Returns the numbers of this program's replicas."""
    with tf.init_scope():
      return [int(number) for number in
              self._strategy.experimental_local_results(
                  self._strategy.experimental_distribute_values_from_function(
                      lambda context: tf.constant(
                          context.replica_id_in_sync_group)))]
