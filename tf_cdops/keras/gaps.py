"""Finds out which of Keras' gaps under a strategy this installation has.

Each is tried on two devices of this CPU, with Keras' own and with ours. Run as
a program, it prints {"keras": version}, then {"trying": name} and {"gap": …}
for each, then {"end": true}, one JSON object a line.
"""

import dataclasses
import json
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cdops import keras as ours

# What Keras and TensorFlow put around a reason.
_AROUND = re.compile(
    r"\x1b\[\d+m|\{\{.*?\}\}|Exception encountered when calling \S+")

@dataclasses.dataclass(frozen=True)
class Gap:
  """Something that Keras documents, and what to use where it doesn't work.

  Attributes:
    name: what is tried.
    use: ours, or else what helps.
    keras: tries it with Keras' own; raises if it doesn't work.
    mended: tries it with ours; None if there is no such thing.
  """

  name: str
  use: str
  keras: Callable[[], None]
  mended: Callable[[], None] | None = None

  def to_dict(self) -> dict[str, Any]:
    """Tries both; returns what became of them: "" for what works."""
    return {"name": self.name, "use": self.use, "keras": _fault(self.keras),
            "ours": _fault(self.mended) if self.mended else None}


def all_gaps() -> tuple[Gap, ...]:
  """Returns all that are known."""
  optimizers = tf.keras.optimizers

  def averaged() -> Any:
    return optimizers.SGD(use_ema=True, ema_overwrite_frequency=1)

  return (
      # keras#19308 and keras#19891: earlier versions didn't.
      Gap("fit trains on all replicas' gradients", "a newer Keras", _fit_one),
      Gap("a gradient that isn't finite, on one replica", "SkipNonFinite",
          lambda: _train(optimizers.SGD, bad=True),
          lambda: _train(lambda: ours.SkipNonFinite("sgd"), bad=True)),
      Gap("LossScaleOptimizer, an overflow on one replica",
          "LossScaleOptimizer",
          lambda: _train(lambda: optimizers.LossScaleOptimizer(
              optimizers.SGD()), bad=True),
          lambda: _train(lambda: ours.LossScaleOptimizer("sgd"), bad=True)),
      Gap("gradient_accumulation_steps", "GradientAccumulation",
          lambda: _train(lambda: optimizers.SGD(gradient_accumulation_steps=2)),
          lambda: _train(lambda: ours.GradientAccumulation("sgd", 2))),
      Gap("use_ema with ema_overwrite_frequency", "ExponentialMovingAverage",
          lambda: _train(averaged),
          lambda: _train(lambda: ours.ExponentialMovingAverage(averaged()))),
      Gap("a first batch that replicas can't divide evenly",
          "accept_uneven_batches", lambda: _fit_three_rows(_strategy()),
          lambda: _fit_three_rows(ours.accept_uneven_batches(_strategy()))))


def _strategy() -> Any:
  names = [device.name for device in tf.config.list_logical_devices("CPU")]
  return tf.distribute.MirroredStrategy(
      names[:2], tf.distribute.ReductionToOneDevice())


def _train(make: Callable[[], Any], bad: bool = False) -> None:
  """Takes a step with one weight.

  Args:
    make: () -> the optimizer.
    bad: whether the second replica's gradient isn't finite.
  """
  strategy = _strategy()
  with strategy.scope():
    weight = tf.Variable(1.0)
    optimizer = make()
    optimizer.build([weight])

  def step() -> None:
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    gradient = tf.where(tf.equal(replica, 1) & bad, np.inf, 1.0)
    optimizer.apply([gradient], [weight])

  tf.function(lambda: strategy.run(step), autograph=False)()
  if not np.isfinite(weight.numpy()):
    raise ArithmeticError("every weight is lost, without a word")


def _fit(strategy: Any, x: Any) -> float:
  """Takes one step of one weight, from 1, towards 0; returns it."""
  with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((1,)), tf.keras.layers.Dense(
            1, use_bias=False, kernel_initializer="ones")])
    model.compile(tf.keras.optimizers.SGD(0.125), "mse", jit_compile=False)
  model.fit(x, np.zeros_like(x), batch_size=len(x), verbose=0)
  return model.get_weights()[0].item()


def _fit_one() -> None:
  # One replica's gradient is 2, and the other one's 6.
  weight = _fit(_strategy(), np.array([[1.0], [3.0 ** 0.5]], "float32"))
  if abs(weight - 0.5) > 1e-3:
    raise ArithmeticError(f"a weight is {weight:g} and not 0.5, without a word")


def _fit_three_rows(strategy: Any) -> None:
  _fit(strategy, np.ones([3, 1], "float32"))


def _fault(attempt: Callable[[], None]) -> str:
  """Returns what it raised, or "" if it works."""
  try:
    attempt()
  except ArithmeticError as error:
    return str(error)
  except Exception as error:  # Whatever Keras or TensorFlow raise.
    text = " ".join(_AROUND.sub("", str(error)).split())
    return f"{type(error).__name__}: {text}"
  return ""


def main() -> None:
  # Strategies read it, and a malformed one would fail every attempt.
  os.environ.pop("TF_CONFIG", "")
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * 2)
  _report(keras=tf.keras.__version__)
  for gap in all_gaps():
    _report(trying=gap.name)
    _report(gap=gap.to_dict())
  _report(end=True)


def _report(**event: Any) -> None:
  print(json.dumps(event), flush=True)


if __name__ == "__main__":
  main()
