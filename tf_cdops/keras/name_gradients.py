"""NameGradients: lets an all-reduce's messages name a model's variables."""

from typing import Any

import tensorflow as tf

from tf_cdops.base import tf_compat


class NameGradients(tf.keras.callbacks.Callback):
  """Tells the strategy's all-reduce which variables a model trains.

  Without it, `on_nonfinite` says a gradient's position, shape and dtype.

      model.fit(x, y, callbacks=[tf_cdops.keras.NameGradients()])
  """

  def on_train_begin(self, logs: Any = None) -> None:
    """Tells, before the step is traced; if it is already, it will be anew."""
    name_gradients(self.model)


def name_gradients(model: Any) -> None:
  """Tells a model's all-reduce what its variables are called, if it listens."""
  ops = tf_compat.cross_device_ops_of(model.distribute_strategy)
  if hasattr(ops, "name_tensors") and ops.name_tensors(
      model.trainable_variables):
    # An earlier `fit` may have traced the step, without these names.
    model.make_train_function(force=True)
