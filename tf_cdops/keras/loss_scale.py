"""LossScaleOptimizer: an overflow on any replica halves the scale."""

from typing import Any

import tensorflow as tf

from tf_cdops.keras import replicas
from tf_cdops.keras import wrapper


@tf.keras.utils.register_keras_serializable(package="tf_cdops")
class LossScaleOptimizer(tf.keras.optimizers.LossScaleOptimizer):
  """Keras' `LossScaleOptimizer`, with gradients that are finite everywhere.

  Keras' own (since keras#18666, about how it failed under MirroredStrategy)
  asks the first replica alone, before gradients are summed: when another one's
  overflow, every weight is lost. This one asks all replicas and workers; the
  rest is Keras', arguments too.

      model.compile(tf_cdops.keras.LossScaleOptimizer("adam"), "mse")

  With `mixed_float16`, `compile` puts Keras' own around an optimizer that is
  no LossScaleOptimizer. So make this the outermost: around
  `GradientAccumulation`, for one.
  """

  def __init__(self, inner_optimizer: Any, *args: Any, **kwargs: Any):
    """See `tf.keras.optimizers.LossScaleOptimizer`.

    Args:
      inner_optimizer: a Keras optimizer, or what `tf.keras.optimizers.get`
        takes.
      *args: as Keras' own: `initial_scale` and `dynamic_growth_steps`.
      **kwargs: likewise.

    Raises:
      ValueError: for a wrong argument, or one that scales losses itself.
    """
    inner = wrapper.optimizer_of(inner_optimizer, "inner_optimizer")
    wrapper.check_has_no_loss_scale(inner)
    super().__init__(inner, *args, **kwargs)

  def build(self, var_list: Any) -> None:
    """Makes the variables of both optimizers."""
    wrapper.check_for_strategy(self)
    replicas.check_scope(self.name, self.inner_optimizer.iterations)
    super().build(var_list)

  def check_finite(self, grads: Any) -> tf.Tensor:
    """Whether the gradients of all replicas are finite."""
    return replicas.on_all(replicas.all_finite(grads))
