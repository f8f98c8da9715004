"""ExponentialMovingAverage: weights that their average overwrites at times."""

from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.keras import replicas
from tf_cdops.keras import wrapper


@tf.keras.utils.register_keras_serializable(package="tf_cdops")
class ExponentialMovingAverage(wrapper.Wrapper):
  """Does what `ema_overwrite_frequency` says, under a strategy too.

  A Keras optimizer with `use_ema` and an `ema_overwrite_frequency` raises a
  RuntimeError about `merge_call` there, as with gradient accumulation
  (keras#20582): it overwrites weights in a tf.cond on each replica. Here all
  replicas decide together. Without a frequency Keras' own works.

      optimizer = tf_cdops.keras.ExponentialMovingAverage(
          tf.keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=100))

  Attributes:
    overwrite_frequency: in how many updates the average overwrites weights.
  """

  def __init__(self, optimizer: Any, *, name: str | None = None):
    """Initializes.

    Args:
      optimizer: a Keras optimizer, or a wrapper of one, with `use_ema` and an
        `ema_overwrite_frequency`, which this one takes over from it.
      name: of this one; None for one that is made of the class's.

    Raises:
      ValueError: for an optimizer without them.
    """
    super().__init__(optimizer, name=name)
    inner = wrapper.innermost(self.inner_optimizer)
    if not (inner.use_ema and inner.ema_overwrite_frequency):
      raise errors.InputError(
          f"`optimizer` ({inner.name}) must have use_ema=True and an "
          "ema_overwrite_frequency; without them it needs no wrapper.")
    self.overwrite_frequency = inner.ema_overwrite_frequency
    inner.ema_overwrite_frequency = None

  def apply_on_replica(self, gradients: list[Any],
                       variables: list[Any]) -> None:
    before = tf.identity(self.iterations)
    self.inner_optimizer.apply(gradients, variables)
    after = tf.identity(self.iterations)
    replicas.decide(
        # The inner one may have skipped the step, or only accumulated.
        tf.not_equal(before, after)
        & tf.equal(after % self.overwrite_frequency, 0), self._overwrite)

  def _overwrite(self) -> None:
    self.finalize_variable_values(self._trainable_variables)
    for variable in self._trainable_variables:
      if getattr(variable, "constraint", None) is not None:
        variable.assign(variable.constraint(variable))

  def get_config(self) -> dict[str, Any]:
    inner = wrapper.innermost(self.inner_optimizer)
    inner.ema_overwrite_frequency = self.overwrite_frequency
    try:
      return super().get_config()
    finally:
      inner.ema_overwrite_frequency = None
