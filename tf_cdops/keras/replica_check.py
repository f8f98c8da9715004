"""ReplicaCheck: notices when replicas no longer have the same weights."""

from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.execution import agreement
from tf_cdops.keras import name_gradients

_ACTIONS = ("raise", "repair")


class ReplicaCheck(tf.keras.callbacks.Callback):
  """Compares all replicas' weights and optimizer slots now and then.

  Replicas must have the same bits of every mirrored variable. A flipped bit, a
  bug, or an update that bypassed the reduction makes them differ for ever, and
  nothing else notices. As a callback it compares every so many steps, and when
  training ends:

      model.fit(x, y, callbacks=[tf_cdops.ReplicaCheck(every=100)])

  As a function it compares a model, or the variables it is given, at once:

      check = tf_cdops.ReplicaCheck()
      check(model)

  Each device makes a checksum of each variable, and only these travel. It
  doesn't use the strategy's reductions. With `SpmdStrategy`, the replicas of
  all programs are compared, so all must make the same calls. Variables with a
  value of their own on each replica, as metrics have, aren't compared. Nor are
  a model's untrained ones that each replica writes for itself, as Keras 3 does
  with the moving averages of BatchNormalization, but for those that you list.
  """

  def __init__(self, every: int = 100, on_difference: str = "raise"):
    """Initializes.

    Args:
      every: after how many steps.
      on_difference: "raise" raises `tf_cdops.errors.ReplicasDifferError`, a
        RuntimeError, which names the variable, the replica and the first
        element in which it differs. "repair" copies from what a strict
        majority of the replicas has, and logs the same; without such a
        majority it raises.

    Raises:
      ValueError: for a wrong argument.
    """
    super().__init__()
    self._every = errors.check_whole_number("every", every, 1)
    if on_difference not in _ACTIONS:
      raise errors.InputError(
          f"`on_difference` ({on_difference!r}) must be 'raise' or 'repair'."
          + errors.did_you_mean(on_difference, _ACTIONS))
    self._repair = on_difference == "repair"
    self._known: Sequence[Any] = ()
    self._agreement: agreement.Agreement | None = None
    self._steps, self._last = 0, -1

  def __call__(self, variables: Any) -> None:
    """Compares these variables now.

    Args:
      variables: mirrored variables of one strategy, or a Keras model.

    Raises:
      ReplicasDifferError: if replicas differ and aren't repaired.
      ValueError: if something isn't a variable, or in a tf.function.
    """
    if not tf.executing_eagerly():
      raise errors.InputError(
          "`ReplicaCheck` must be called where code runs at once, and was in a "
          "graph; call it between calls of a tf.function.")
    given = (_mirrored(variables) if isinstance(variables, tf.keras.Model)
             else _listed(variables))
    if self._agreement is None or len(given) != len(self._known) or any(
        map(lambda one, other: one is not other, given, self._known)):
      self._agreement, self._known = agreement.Agreement(given), given
    if text := self._agreement.check(self._repair):
      logging.warning("ReplicaCheck has repaired this: %s", text)

  def on_train_begin(self, logs: Any = None) -> None:
    """Begins to count."""
    name_gradients.name_gradients(self.model)
    self._steps = 0

  def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
    """Begins with the epoch's first step."""
    self._last = -1

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    """Compares, if it is time."""
    # With steps_per_execution, it is called once for several steps.
    self._steps += max(batch - self._last, 1)
    self._last = batch
    if self._steps >= self._every:
      self._steps %= self._every
      self(self.model)

  def on_train_end(self, logs: Any = None) -> None:
    """Compares what the last steps have made."""
    if self._steps:
      self(self.model)


def _listed(variables: Any) -> list[Any]:
  if not isinstance(variables, Iterable) or hasattr(variables, "dtype"):
    raise errors.InputError(
        f"`variables` ({variables!r}) must be a Keras model, or a list of "
        "variables, such as those of a model or of an optimizer.")
  return list(variables)


def _mirrored(model: Any) -> list[Any]:
  """Returns those of a model's variables that replicas have in common."""
  mine = [variable for variable in model.variables
          if _is_written_alike(variable.value)]
  optimizer = getattr(model, "optimizer", None)
  return mine + (list(optimizer.variables) if optimizer is not None else [])


def _is_written_alike(variable: tf.Variable) -> bool:
  # Of a frozen layer, too, which was made to be trained.
  return bool(variable.trainable) or (
      variable.aggregation != tf.VariableAggregation.NONE)
