"""GradientAccumulation: several steps' gradients make one update."""

from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.keras import accumulators
from tf_cdops.keras import replicas
from tf_cdops.keras import wrapper

_PREFIX = "gradient_accumulator_"


@tf.keras.utils.register_keras_serializable(package="tf_cdops")
class GradientAccumulation(wrapper.Wrapper):
  """Applies the mean gradient of `steps` steps, once in as many.

  As `gradient_accumulation_steps` of a Keras optimizer, which under a strategy
  raises a RuntimeError about `merge_call` (keras#20582; keras#17429 is about
  loops of one's own). Each replica adds up its gradients by itself, and they
  travel once in `steps` steps.

      optimizer = tf_cdops.keras.GradientAccumulation("adam", steps=4)
      model.compile(optimizer, "mse")

  It does as Keras does: `iterations` counts updates, a learning rate's schedule
  gets the number of steps, and sparse gradients become dense. But with
  `use_ema` it averages updates, where Keras averages in every step. The sums
  are saved with the optimizer, each replica's own, so that training goes on
  from the middle of an accumulation. With `mixed_float16` put our
  `LossScaleOptimizer` around it.

  Attributes:
    steps: how many steps make one update.
  """

  _accumulators: tuple[accumulators.Accumulator, ...] = ()  # Until it is built.

  def __init__(self, optimizer: Any, steps: int, *, name: str | None = None):
    """Initializes.

    Args:
      optimizer: a Keras optimizer without `gradient_accumulation_steps`, or
        what `tf.keras.optimizers.get` takes.
      steps: how many steps make one update.
      name: of this one; None for one that is made of the class's.

    Raises:
      ValueError: for a wrong argument.
    """
    errors.check_whole_number("steps", steps, 1)
    super().__init__(optimizer, name=name)
    self.steps = steps
    inner = wrapper.innermost(self.inner_optimizer)
    if getattr(inner, "gradient_accumulation_steps", None):
      raise errors.InputError(
          "`optimizer` has gradient_accumulation_steps="
          f"{inner.gradient_accumulation_steps}, and must have none; leave it "
          "to `steps`.")
    schedule = getattr(inner, "_learning_rate", None)
    if not isinstance(schedule, InSteps) and isinstance(
        schedule, tf.keras.optimizers.schedules.LearningRateSchedule):
      inner.learning_rate = InSteps(schedule, steps)

  def build(self, variables: Any) -> None:
    """Makes the variables of both optimizers, and each replica's sums."""
    variables = list(variables)
    super().build(variables)
    self._accumulators = tuple(
        accumulators.Accumulator(variable, f"{_PREFIX}{i}")
        for i, variable in enumerate(variables))
    for i, accumulator in enumerate(self._accumulators):
      # Keras doesn't track what is set while it builds.
      tf_compat.track(self, accumulator, f"{_PREFIX}{i}")

  def apply_on_replica(self, gradients: list[Any],
                       variables: list[Any]) -> None:
    sums = [None if gradient is None
            else self._accumulators[self._get_variable_index(variable)]
            for gradient, variable in zip(gradients, variables, strict=True)]
    for gradient, total in zip(gradients, sums, strict=True):
      if total is not None:
        total.add(gradient)

    def update() -> None:
      self.inner_optimizer.apply(
          [None if total is None else total.take(self.steps)
           for total in sums], variables)

    # Keras, too, counts steps in this variable, and updates in `iterations`.
    replicas.decide(
        tf.equal((self._iterations + 1) % self.steps, 0),
        lambda: replicas.on_each(update))
    self._iterations.assign_add(1)

  def save_own_variables(self, store: Any) -> None:
    super().save_own_variables(store)
    for i, accumulator in enumerate(self._accumulators):
      store[f"{_PREFIX}{i}"] = accumulator.to_tensor().numpy()

  def load_own_variables(self, store: Any) -> None:
    keys = list(store.keys())
    super().load_own_variables(
        {key: store[key] for key in keys if not key.startswith(_PREFIX)})
    for i, accumulator in enumerate(self._accumulators):
      if f"{_PREFIX}{i}" in keys:
        accumulator.from_tensor(store[f"{_PREFIX}{i}"])

  def get_config(self) -> dict[str, Any]:
    return super().get_config() | {"steps": self.steps}


@tf.keras.utils.register_keras_serializable(package="tf_cdops")
class InSteps(tf.keras.optimizers.schedules.LearningRateSchedule):
  """A learning rate's schedule in steps, of an optimizer that counts updates.

  An update comes in the last of its steps.
  """

  def __init__(self, schedule: Any, steps: int):
    self.schedule, self.steps = schedule, steps

  def __call__(self, step: Any) -> Any:
    return self.schedule((step + 1) * self.steps - 1)

  def get_config(self) -> dict[str, Any]:
    return {"schedule": tf.keras.utils.serialize_keras_object(self.schedule),
            "steps": self.steps}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> "InSteps":
    return cls(tf.keras.utils.deserialize_keras_object(config["schedule"]),
               config["steps"])
