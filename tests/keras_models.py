"""Small models for the tests of tf_cdops.keras."""

import contextlib
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

import tf_cdops


def scope(strategy: Any) -> Any:
  return strategy.scope() if strategy else contextlib.nullcontext()


def linear_loss(y: Any, predicted: Any) -> Any:
  """Has gradients that don't depend on weights, so that sums stay exact."""
  return tf.reduce_sum(y * predicted, axis=-1)


def model(strategy: Any, optimizer: Any, loss: Any = linear_loss,
          **compiled: Any) -> Any:
  """Returns a small one that is made alike wherever it is made.

  Args:
    strategy: where; None for nowhere.
    optimizer: () -> the optimizer.
    loss: for `compile`.
    **compiled: the same.
  """
  tf.keras.utils.set_random_seed(0)
  layers = tf.keras.layers
  with scope(strategy):
    made = tf.keras.Sequential([
        layers.Input((4,)), layers.Dense(3, kernel_initializer="ones")])
    made.compile(optimizer(), loss, **{"jit_compile": False} | compiled)
  return made


def mixed_model(strategy: Any, optimizer: Any, **compiled: Any) -> Any:
  """Returns a model of float16 whose gradient is the mean of x times y."""
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  try:
    with scope(strategy):
      made = tf.keras.Sequential([
          tf.keras.layers.Input((2,)), tf.keras.layers.Dense(
              1, use_bias=False, kernel_initializer="ones")])
      made.compile(optimizer(), linear_loss, jit_compile=False, **compiled)
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  return made


def fit_mixed(strategy: Any, replicas: int, callbacks: Any = None,
              **compiled: Any) -> Any:
  """Takes 200 steps, of which many overflow on one replica or another."""
  made = mixed_model(strategy, lambda: tf_cdops.keras.LossScaleOptimizer(
      tf.keras.optimizers.Adam(0.01), 2.0 ** 20, dynamic_growth_steps=7),
                     **compiled)
  rng = np.random.default_rng(replicas)
  x = rng.normal(size=(200 * replicas, 2)).astype("float32")
  y = np.exp(rng.normal(size=(200 * replicas, 1)) * 2).astype("float32")
  return fit(made, x, y, replicas, callbacks=callbacks and callbacks(made))


def whole_numbers(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  rng = np.random.default_rng(seed)
  return (rng.integers(-4, 5, (rows, 4)).astype("float32"),
          rng.integers(-4, 5, (rows, 3)).astype("float32"))


def real_numbers(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  rng = np.random.default_rng(seed)
  return (rng.normal(size=(rows, 4)).astype("float32"),
          rng.normal(size=(rows, 3)).astype("float32"))


def fit(made: Any, x: Any, y: Any, batch_size: int, **kwargs: Any) -> Any:
  made.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0, **kwargs)
  return made


def state(*variables: Any) -> list[list[np.ndarray]]:
  """Returns every replica's copy of each variable."""
  return [[copy.numpy() for copy in getattr(
      getattr(variable, "value", variable), "values", (variable,))]
          for variable in variables]


def full_state(made: Any) -> list[list[np.ndarray]]:
  return state(*made.variables, *made.optimizer.variables)


def train_mended(strategy: Any, folder: pathlib.Path) -> dict[str, Any]:
  """Trains with each of tf_cdops.keras, of two replicas; returns numbers."""
  optimizers, mended = tf.keras.optimizers, tf_cdops.keras
  x, y = real_numbers(32)
  results: dict[str, Any] = {}

  def trained(name: str, optimizer: Any, x: Any = x, batch_size: int = 4,
              **kwargs: Any) -> Any:
    made = fit(model(strategy, optimizer, "mse", **kwargs), x, y[:len(x)],
               batch_size)
    results[name] = [weight.tolist() for weight in made.get_weights()]
    return made

  def accumulating() -> Any:
    return mended.GradientAccumulation(optimizers.Adam(0.1), 4)

  begun = trained("accumulated", accumulating, x[:24])  # Two steps more.
  folder.mkdir(parents=True, exist_ok=True)
  begun.save_weights(folder / "begun.weights.h5")
  resumed = model(strategy, accumulating, "mse")
  with scope(strategy):
    resumed.optimizer.build(resumed.trainable_variables)
  resumed.load_weights(folder / "begun.weights.h5")
  for made in (begun, resumed):
    fit(made, x[24:], y[24:], 4)
  results["resumed"] = [weight.tolist() for weight in resumed.get_weights()]
  np.testing.assert_array_equal(resumed.get_weights()[0],
                                begun.get_weights()[0])
  trained("averaged", lambda: mended.ExponentialMovingAverage(optimizers.SGD(
      0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)))
  bad = x.copy()
  bad[[6, 9], 0] = np.nan, np.inf  # The second replica's, then the first one's.
  skipped = trained("skipped", lambda: mended.SkipNonFinite(
      optimizers.Adam(0.1)), bad, steps_per_execution=2)
  results["skipped steps"] = int(skipped.optimizer.skipped_steps.numpy())
  bad[[6, 9], 0] = 1e30  # Squared and scaled, it is beyond float32.
  scaled = trained("scaled", lambda: mended.LossScaleOptimizer(
      optimizers.SGD(0.1), initial_scale=2.0 ** 10), bad)
  results["scale"] = float(scaled.optimizer.dynamic_scale.numpy())
  mixed = fit_mixed(strategy, 2, steps_per_execution=20)
  results["mixed"] = [*(weight.tolist() for weight in mixed.get_weights()),
                      float(mixed.optimizer.dynamic_scale.numpy()),
                      int(mixed.optimizer.iterations.numpy())]
  trained("uneven", lambda: optimizers.SGD(0.1), x[:10], 5)
  trained("none for the second", lambda: optimizers.SGD(0.1), x[:2], 1)
  return results
