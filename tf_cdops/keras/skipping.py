"""SkipNonFinite: a step with an infinity or a NaN changes nothing."""

from typing import Any

import tensorflow as tf

from tf_cdops.keras import replicas
from tf_cdops.keras import wrapper


@tf.keras.utils.register_keras_serializable(package="tf_cdops")
class SkipNonFinite(wrapper.Wrapper):
  """Leaves out the steps in which any replica's gradient isn't finite.

  No weight, slot or `iterations` moves in such a step; `skipped_steps` counts
  them. All replicas and workers decide alike: each looks at its own gradients,
  and four bytes travel before the gradients do.

      optimizer = tf_cdops.keras.SkipNonFinite(tf.keras.optimizers.Adam())
      model.compile(optimizer, "mse")

  Keras applies a gradient that isn't finite, with which every weight is lost;
  tensorflow#90686 and tensorflow#62915 tell of such runs on several GPUs. What
  a model changes in its forward pass, such as BatchNormalization's moving
  averages, is no matter of an optimizer, and isn't held back. For
  `mixed_float16` take `LossScaleOptimizer`, which skips such steps, too.

  Attributes:
    skipped_steps: how many steps were left out since this object was made.
  """

  def __init__(self, optimizer: Any, *, name: str | None = None):
    super().__init__(optimizer, name=name)
    # No keras.Variable: those of an optimizer mustn't move in such a step.
    self.skipped_steps = tf.Variable(
        0, trainable=False, dtype=tf.int64, name="skipped_steps",
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

  def apply_on_replica(self, gradients: list[Any],
                       variables: list[Any]) -> None:
    def apply(*gradients: Any) -> None:
      self.inner_optimizer.apply(list(gradients), variables)

    replicas.decide(
        replicas.on_all(replicas.all_finite(gradients)),
        lambda *args: replicas.on_each(apply, *args),
        lambda: _count(self.skipped_steps), tuple(gradients))


def _count(variable: tf.Variable) -> None:
  variable.assign_add(1)
