"""What our optimizers have in common: each wraps another."""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.keras import replicas


class Wrapper(tf.keras.optimizers.Optimizer):
  """A Keras optimizer that decides when another one is applied.

  Learning rate and iterations are the inner one's. A subclass has
  `apply_on_replica`.

  Attributes:
    inner_optimizer: the one that changes weights; it may be a wrapper, too.
  """

  def __init__(self, optimizer: Any, *, name: str | None = None):
    """Initializes.

    Args:
      optimizer: a Keras optimizer, or what `tf.keras.optimizers.get` takes.
      name: of this one; None for one that is made of the class's.
    """
    inner = optimizer_of(optimizer, "optimizer")
    super().__init__(learning_rate=0.0, name=name)
    self.inner_optimizer = inner

  def build(self, variables: Any) -> None:
    """Makes the variables of both optimizers."""
    check_for_strategy(self)
    replicas.check_scope(self.name, self._iterations, self.iterations)
    variables = list(variables)
    if not self.inner_optimizer.built:
      self.inner_optimizer.build(variables)
    super().build(variables)

  @tf.autograph.experimental.do_not_convert
  def apply(self, grads: Any, trainable_variables: Any = None) -> None:
    """See `tf.keras.optimizers.Optimizer.apply`."""
    replicas.check_context()
    gradients = list(grads)
    if not gradients:
      return
    variables = list(self._trainable_variables if trainable_variables is None
                     else trainable_variables)
    if not self.built:
      self.build(variables)
    self.apply_on_replica(gradients, variables)

  def apply_on_replica(self, gradients: list[Any],
                       variables: list[Any]) -> None:
    """Does what `apply` does, in a replica's context; all is built."""
    raise NotImplementedError

  @property
  def variables(self) -> list[Any]:
    return [*super().variables, *self.inner_optimizer.variables]

  @property
  def learning_rate(self) -> Any:
    return self.inner_optimizer.learning_rate

  @learning_rate.setter
  def learning_rate(self, value: Any) -> None:
    self.inner_optimizer.learning_rate = value

  @property
  def iterations(self) -> Any:
    return self.inner_optimizer.iterations

  @iterations.setter
  def iterations(self, value: Any) -> None:
    # The constructor of Keras 3.3 sets it; newer ones set this.
    self._iterations = value

  @property
  def loss_scale_factor(self) -> Any:
    # Not None with a scale inside: Keras sets nothing that is so already.
    return getattr(self.inner_optimizer, "initial_scale",
                   self.inner_optimizer.loss_scale_factor)

  @loss_scale_factor.setter
  def loss_scale_factor(self, value: Any) -> None:
    # Keras' constructor sets it, and so does a LossScaleOptimizer around.
    if hasattr(self, "inner_optimizer"):
      check_has_no_loss_scale(self)
      self.inner_optimizer.loss_scale_factor = value

  def scale_loss(self, loss: Any) -> Any:
    return self.inner_optimizer.scale_loss(loss)

  def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
    self.inner_optimizer.finalize_variable_values(var_list)

  def get_config(self) -> dict[str, Any]:
    return {"name": self.name,
            "optimizer": tf.keras.utils.serialize_keras_object(
                self.inner_optimizer)}

  @classmethod
  def from_config(cls, config: dict[str, Any],
                  custom_objects: Any = None) -> "Wrapper":
    inner = tf.keras.utils.deserialize_keras_object(
        config["optimizer"], custom_objects=custom_objects)
    return cls(**config | {"optimizer": inner})


def optimizer_of(given: Any, argument: str) -> Any:
  """Returns the optimizer that an argument stands for."""
  if not isinstance(given, (str, tf.keras.optimizers.Optimizer)) and not (
      isinstance(given, dict) and "class_name" in given):
    raise errors.InputError(
        f"`{argument}` ({given!r}) must be a Keras optimizer, or the name or "
        "the configuration of one.")
  return tf.keras.optimizers.get(given)


def innermost(optimizer: Any) -> Any:
  """Returns the optimizer that wraps no other."""
  *_, found = _chain(optimizer)
  return found


def check_has_no_loss_scale(optimizer: Any) -> None:
  """Raises if it is or wraps a LossScaleOptimizer: another is put around.

  Gradients would be divided by both scales, and the loss multiplied by one.
  """
  for one in _chain(optimizer):
    if isinstance(one, tf.keras.optimizers.LossScaleOptimizer):
      raise errors.InputError(
          f"`optimizer` ({optimizer.name}) must have no LossScaleOptimizer "
          "inside, since another is put around it, and there can be but one. "
          "Make tf_cdops.keras.LossScaleOptimizer the outermost; with "
          "mixed_float16, `compile` puts Keras' own around all others.")


def check_for_strategy(optimizer: Any) -> None:
  """Raises if, under a strategy, the innermost one would fail in Keras."""
  inner = innermost(optimizer)
  if not tf.distribute.has_strategy():
    return
  for setting, remedy in (
      ("gradient_accumulation_steps", "GradientAccumulation(optimizer, steps)"),
      ("ema_overwrite_frequency", "ExponentialMovingAverage(optimizer)")):
    if value := getattr(inner, setting, None):
      raise errors.InputError(
          f"`optimizer` ({inner.name}) has {setting}={value}, which Keras 3 "
          "can't do under a strategy (keras#20582); use "
          f"tf_cdops.keras.{remedy}.")


def _chain(optimizer: Any) -> Iterator[Any]:
  """Yields an optimizer, the one that it wraps, and so on."""
  yield optimizer
  while hasattr(optimizer, "inner_optimizer"):
    optimizer = optimizer.inner_optimizer
    yield optimizer
