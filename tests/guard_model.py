"""A model that can be given faults, for tests of what notices them."""

import re

import numpy as np
import tensorflow as tf

import tf_cdops

BATCH_PER_REPLICA, STEPS = 2, 4
_WORDS, _LENGTH = 20, 3


@tf.keras.utils.register_keras_serializable("tf_cdops_tests")
class Faulty(tf.keras.Model):
  """Sparse and dense gradients, of which one element can be spoilt.

  Attributes:
    where: variable, element, replica and iteration of the fault.
    what: the number that the element becomes.
  """

  def __init__(self):
    super().__init__(name="faulty")
    self.inner = tf.keras.Sequential([
        tf.keras.layers.Input((_LENGTH,), dtype="int32"),
        tf.keras.layers.Embedding(_WORDS, 4, name="words"),
        tf.keras.layers.Flatten(), tf.keras.layers.Dense(5, name="hidden"),
        tf.keras.layers.Dense(1, name="last")])
    self.where = tf.Variable([-1] * 4, trainable=False, dtype=tf.int32)
    self.what = tf.Variable(0.0, trainable=False)

  def call(self, x):
    return self.inner(x)

  def train_step(self, data):
    x, y = data
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean((self(x) - y)**2)
    weights = self.trainable_variables
    gradients = tape.gradient(loss, [weight.value for weight in weights])
    self.optimizer.apply_gradients(
        [(self._spoilt(i, gradient), weight) for i, (gradient, weight)
         in enumerate(zip(gradients, weights, strict=True))])
    return {"loss": loss}

  def _spoilt(self, number, gradient):
    variable, element, replica, iteration = tf.unstack(
        tf.convert_to_tensor(self.where))
    context = tf.distribute.get_replica_context()
    values = (gradient.values if isinstance(gradient, tf.IndexedSlices)
              else gradient)
    hit = (variable == number) & (
        replica == context.replica_id_in_sync_group) & (
            iteration == tf.cast(self.optimizer.iterations.value, tf.int32))
    flat = tf.reshape(values, [-1])
    at = tf.range(tf.size(flat)) == element % tf.size(flat)
    values = tf.reshape(tf.where(hit & at, tf.convert_to_tensor(self.what),
                                 flat), tf.shape(values))
    if isinstance(gradient, tf.IndexedSlices):
      return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return values


def make(strategy, mode: str) -> Faulty:
  """Returns one, compiled for "eager", "function" or "steps" (4 a call)."""
  with strategy.scope():
    tf.keras.utils.set_random_seed(0)
    model = Faulty()
    model.compile(tf.keras.optimizers.Adam(0.001),
                  run_eagerly=mode == "eager",
                  steps_per_execution=STEPS if mode == "steps" else 1)
    model.optimizer.build(model.trainable_variables)
  return model


def data(strategy):
  """Returns as many examples as STEPS steps take."""
  rows = STEPS * BATCH_PER_REPLICA * strategy.num_replicas_in_sync
  rng = np.random.default_rng(0)
  return (rng.integers(0, _WORDS, [rows, _LENGTH]).astype("int32"),
          rng.normal(size=[rows, 1]).astype("float32"))


def fit(strategy, model, callbacks=()):
  x, y = data(strategy)
  model.fit(x, y, verbose=0, shuffle=False, callbacks=list(callbacks),
            batch_size=BATCH_PER_REPLICA * strategy.num_replicas_in_sync)


def error_of(action) -> Exception | None:
  """Returns what it raises."""
  try:
    action()
  except (tf.errors.OpError, RuntimeError) as error:
    return error
  return None


def spoil_gradient(strategy, model, chance, what: float) -> list[str]:
  """Spoils one element in one step; returns what is wrong with the error."""
  number = chance.randrange(len(model.trainable_variables))
  replica = chance.randrange(strategy.num_replicas_in_sync)
  begin = int(model.optimizer.iterations.numpy())
  model.where.assign([number, chance.randrange(1 << 16), replica,
                      begin + chance.randrange(STEPS)])
  model.what.assign(what)
  error = error_of(lambda: fit(strategy, model,
                               [tf_cdops.keras.NameGradients()]))
  model.where.assign([-1] * 4)
  if not isinstance(error, tf.errors.InvalidArgumentError):
    return [f"{error!r} was raised"]
  name = model.trainable_variables[number].path
  named = re.findall(
      r"replica (\d+) of worker (\d+) \(\S+\): (\S+) \(tensor (\d+) of 5, "
      r"shape \([\d, ]*\), float32\) has (\d+) element", str(error))
  expected = (str(replica), str(worker_of(strategy, replica)), name,
              str(number), "1")
  # TensorFlow tells of an error once for each device.
  wrong = [] if set(named) == {expected} else [f"{expected}, but: {error}"]
  return wrong + not_finite(strategy, model)


def not_finite(strategy, model) -> list[str]:
  """Says which variables aren't finite on some replica."""
  return [f"{variable.path} isn't finite"
          for variable in (*model.variables, *model.optimizer.variables)
          for copy in strategy.experimental_local_results(variable.value)
          if not np.all(np.isfinite(copy.numpy()))]


def worker_of(strategy, replica: int) -> int:
  """Each has as many replicas; those of other programs aren't listed here."""
  tasks = {name.partition("/device:")[0]
           for name in strategy.extended.worker_devices}
  each = len(strategy.extended.worker_devices) // len(tasks)
  return replica // each


class FlipBit(tf.keras.callbacks.Callback):
  """Flips a bit of one replica's copy after the first step."""

  def __init__(self, copy, element, bit):
    super().__init__()
    self._copy, self._element, self._bit = copy, element, bit
    self._is_done = False

  def on_train_batch_end(self, batch, logs=None):
    del batch, logs
    if not self._is_done:
      self.flip()
      self._is_done = True

  def flip(self):
    if self._copy is None:
      return
    array = self._copy.numpy()
    content = bytearray(array.tobytes())
    at = self._element * array.itemsize + self._bit // 8
    content[at] ^= 1 << self._bit % 8
    self._copy.assign(
        np.frombuffer(bytes(content), array.dtype).reshape(array.shape))


def local_copy(strategy, variable, replica):
  """Returns a replica's copy; None if another program has it."""
  copies = strategy.experimental_local_results(variable.value)
  first = getattr(strategy.extended, "_id_in_cluster", 0) * len(copies)
  return (copies[replica - first] if 0 <= replica - first < len(copies)
          else None)


def flip_bit(strategy, model, chance, kind: str) -> list[str]:
  """Flips a bit of a weight or slot; returns what is wrong with the error."""
  count = strategy.num_replicas_in_sync
  variable = chance.choice(
      model.trainable_variables if kind == "weight"
      else [v for v in model.optimizer.variables if len(v.shape)])
  replica = chance.randrange(count)
  element = chance.randrange(int(np.prod(variable.shape)))
  flip = FlipBit(local_copy(strategy, variable, replica), element,
                 chance.randrange(32))
  action = chance.choice(("raise", "repair"))
  error = error_of(lambda: fit(strategy, model, [
      flip, tf_cdops.ReplicaCheck(every=1, on_difference=action)]))
  if count > 2 and action == "repair":
    return [f"{error!r} was raised"] if error else not_finite(strategy, model)
  flip.flip()  # Back again.
  if not isinstance(error, tf_cdops.errors.ReplicasDifferError):
    return [f"{error!r} was raised"]
  index = re.escape(str(tuple(map(int, np.unravel_index(
      element, tuple(variable.shape))))))
  # Of two, nobody can say which is right.
  named, others = ((replica, f"{count - 1} of {count} replicas have")
                   if count > 2 else (1, "replica 0 of worker 0 "))
  expected = (rf"^Replicas differ: {re.escape(variable.path)} \(.*\): replica "
              rf"{named} of worker {worker_of(strategy, named)} \(\S+\) has "
              rf"\S+ \(0x[0-9a-f]{{8}}\) in element {index}, where {others}")
  return [] if re.search(expected, str(error)) else [
      f"{expected}, but: {error}"]
