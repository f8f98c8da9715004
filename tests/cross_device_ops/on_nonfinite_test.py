"""Tests of `on_nonfinite`."""

import contextlib
import itertools
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.base import tf_compat

SUM, MEAN = test_util.SUM, test_util.MEAN
REPLICAS = class_util.REPLICAS
each, batch_reduce = class_util.each, class_util.batch_reduce
ODD = (math.nan, math.inf, -math.inf)


def make(mode: str | None, spec: str = "xring", **kwargs: Any) -> Any:
  return tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, on_nonfinite=mode,
                                       **kwargs)


def spoilt(replica: int, value: float = math.nan, count: int = 1,
           dtype: Any = tf.float32, replicas: int = REPLICAS) -> Any:
  """Returns 1, 2, 3, 4, 5, 6 times the replica's number; some are spoilt."""
  def of(number: int) -> tf.Tensor:
    numbers = number * np.arange(1.0, 7.0)
    if number == replica + 1:
      numbers[:count] = value
    return tf.cast(numbers.reshape(2, 3), dtype)
  return each(of, replicas)


@contextlib.contextmanager
def standard_error() -> Iterator[list[str]]:
  """Yields a list, which gets what TensorFlow's kernels write, too."""
  text: list[str] = []
  with tempfile.TemporaryFile() as file:
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
      yield text
    finally:
      os.dup2(kept, 2)
      os.close(kept)
      file.seek(0)
      text.append(file.read().decode())


class RaiseTest(parameterized.TestCase):

  def assert_named(self, mode: str, emit: Callable[[], Any],
                   message: str) -> None:
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
      test_util.run(mode, emit)

  @parameterized.product(mode=test_util.MODES, odd=ODD, reduce_op=(SUM, MEAN))
  def test_names_replica_worker_tensor_and_count(self, mode, odd, reduce_op):
    ops = make("raise")
    self.assert_named(
        mode, lambda: batch_reduce(ops, reduce_op, [
            *class_util.vectors([5]), spoilt(2, odd, 3)]),
        r"on_nonfinite=raise: replica 2 of worker 0 \(\S*CPU:2\): tensor 1 of "
        r"2 \(shape \(2, 3\), float32\) has 3 elements that are not finite\.")

  @parameterized.product(mode=test_util.MODES, spec=("ps", "collective"))
  def test_names_each(self, mode, spec):
    ops = make("raise", spec)
    self.assert_named(
        mode, lambda: batch_reduce(ops, SUM, [spoilt(0), spoilt(3, count=6)]),
        r"replica 0 .*: tensor 0 of 2 .* has 1 element that is not finite; "
        r"replica 3 .*: tensor 1 of 2 .* has 6 elements that are")

  @parameterized.parameters(*test_util.MODES)
  def test_names_some_of_many(self, mode):
    ops = make("raise")
    self.assert_named(
        mode, lambda: batch_reduce(ops, SUM, [spoilt(1)] * 11),
        r"tensor 7 of 11 .*; and 3 more\.")

  @parameterized.parameters(*class_util.CLASSES)
  def test_every_class(self, kind_of):
    ops = kind_of(on_nonfinite="raise", **(
        {"all_reduce_alg": "xring"}
        if kind_of is tf_cdops.AllReduceCrossDeviceOps else {}))
    for mode in test_util.MODES:
      self.assert_named(mode, lambda: batch_reduce(ops, SUM, [spoilt(1)]),
                        "replica 1 of worker 0")
    self.assertIn("on_nonfinite='raise'", repr(ops))

  @parameterized.parameters("float16", "bfloat16", "float32", "float64",
                            "complex64")
  def test_every_dtype(self, dtype):
    ops = make("raise")
    for odd in ODD:
      with self.assertRaisesRegex(tf.errors.InvalidArgumentError,
                                  f"replica 3 .*{dtype}.* has 2 elements"):
        batch_reduce(ops, SUM, [spoilt(3, odd, 2, dtype)])

  @parameterized.product(mode=test_util.MODES, guard=("raise", "drop"),
                         reduce_op=(SUM, MEAN))
  def test_a_sum_that_overflows(self, mode, guard, reduce_op):
    ops = make(guard)
    large = lambda _: tf.constant([3e4, 1.0], tf.float16)
    self.assert_named(
        mode, lambda: batch_reduce(ops, reduce_op, [
            *class_util.vectors([5]), each(large)]),
        rf"on_nonfinite={guard}: the sum of all replicas, each of which is "
        r"finite: tensor 1 of 2 \(shape \(2,\), float16\) has 1 element that "
        "is not finite")

  @parameterized.parameters(*test_util.MODES)
  def test_a_sum_overflows_and_a_replica_is_odd(self, mode):
    large = lambda _: tf.constant([3e4], tf.float16)
    self.assert_named(
        mode, lambda: batch_reduce(make("drop"), SUM, [
            spoilt(1), each(large)]),
        r"drop: replica 1 .*: tensor 0 of 2 .*; the sum of all replicas, .*: "
        "tensor 1 of 2")

  def test_tensors_that_lie_elsewhere(self):
    # As in a replica's eager code: the strategy says who they are.
    names = virtual_devices.names(2)
    values = tf_compat.PerReplica(tuple(
        tf.constant([one]) for one in (1.0, math.nan)))
    with (tf.distribute.MirroredStrategy(names).scope(),
          self.assertRaisesRegex(tf.errors.InvalidArgumentError,
                                 r"replica 1 of worker 0 \(\S*CPU:1\)")):
      make("raise").reduce(SUM, values, values)

  def test_virtual_workers(self):
    ops = make("raise", "ps/xring", topology=class_util.PAIRED)
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError,
                                r"replica 2 of worker 1 \(\S*CPU:2\)"):
      batch_reduce(ops, SUM, [spoilt(2)])

  @parameterized.product(mode=test_util.MODES,
                         sparse=("gather", "deduplicate", "dense"))
  def test_sparse(self, mode, sparse):
    ops = make("raise", sparse=sparse)
    self.assert_named(mode, lambda: batch_reduce(ops, SUM, [
        *class_util.vectors([2]), test_util.per_replica_slices(
            ([[1, 2], [3, 4]], [2, 0], [4, 2]),
            ([[7, math.inf]], [3], [4, 2]))]),
                      r"replica 1 .*tensor 1 of 2 .*has 1 element")

  @parameterized.parameters(*test_util.MODES)
  def test_to_one_device(self, mode):
    ops = make("raise")
    self.assert_named(
        mode, lambda: [ops.reduce(SUM, spoilt(1), virtual_devices.names(3)[2])],
        "replica 1 of worker 0")

  @parameterized.parameters(*test_util.MODES)
  def test_one_replica(self, mode):
    ops = make("raise")
    value = lambda: spoilt(0, replicas=1)
    self.assert_named(mode, lambda: batch_reduce(ops, SUM, [value()]),
                      "replica 0 of worker 0")
    self.assert_named(mode, lambda: [ops.reduce(SUM, (v := value()), v)],
                      "replica 0 of worker 0")

  def test_unknown_shapes(self):
    ops = make("raise")
    self.assert_named("function", lambda: batch_reduce(ops, SUM, [
        each(lambda r, shape=shape: class_util.of_unknown_shape(
            tf.constant([1.0, math.nan if r == 2 else r]), shape))
        for shape in (None, [None])]),
                      r"tensor 0 of 2 \(shape unknown, float32\).*"
                      r"tensor 1 of 2 \(shape \(None,\), float32\)")

  def test_the_weights_are_left_alone(self):
    strategy = class_util.strategy_of(make("raise"), 2)
    with strategy.scope():
      weight = tf.Variable([1.0, 2.0])

    @tf.function
    def step(spoil):
      def replica():
        context = tf.distribute.get_replica_context()
        gradient = tf.where(
            spoil & (context.replica_id_in_sync_group == 1), math.nan, 1.0)
        total = context.all_reduce(SUM, gradient * tf.ones([2]))
        context.merge_call(lambda s, t: s.extended.update(
            weight, lambda v, one: v.assign_sub(one), (t,)), (total,))
      strategy.run(replica)

    step(False)
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "replica 1"):
      step(True)
    for copy in weight.values:
      self.assertEqual(copy.numpy().tolist(), [-1.0, 0.0])
    step(False)
    self.assertEqual(weight.numpy().tolist(), [-3.0, -2.0])

  def test_in_a_loop(self):
    ops = make("raise")

    @tf.function
    def loop(bad):
      total = tf.zeros([3])
      for i in tf.range(4):
        value = class_util.each(
            lambda r, i=i: tf.where((i == bad) & (r == 2), math.inf, 1.0)
            * tf.ones([3]))
        total += ops.reduce(SUM, value, value).values[0]
      return total

    self.assertEqual(loop(7).numpy().tolist(), [16.0] * 3)
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError,
                                "replica 1 .* has 3 elements"):
      loop(2)


class NamesTest(parameterized.TestCase):

  @parameterized.parameters(*test_util.MODES)
  def test_named_variables(self, mode):
    ops = make("raise")
    ops.name_tensors([tf.Variable(tf.zeros([5]), name="bias"),
                      tf.Variable(tf.zeros([2, 3]), name="kernel")])
    with self.assertRaisesRegex(
        tf.errors.InvalidArgumentError,
        r"replica 2 .*: kernel \(tensor 1 of 2, shape \(2, 3\), float32\) has"):
      test_util.run(mode, lambda: batch_reduce(
          ops, SUM, [*class_util.vectors([5]), spoilt(2)]))

  def test_destinations_that_are_variables(self):
    ops = make("raise")
    with class_util.strategy_of(ops).scope():
      kernel = tf.Variable(tf.zeros([2, 3]), name="kernel")
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError,
                                r"kernel \(tensor 0 of 1"):
      ops.batch_reduce(SUM, [(spoilt(2), kernel)])


class DropTest(parameterized.TestCase):

  @parameterized.product(mode=test_util.MODES, reduce_op=(SUM, MEAN),
                         spec=("xring", "auto"))
  def test_leaves_out_what_is_not_finite(self, mode, reduce_op, spec):
    ops = make("drop", spec)
    plain = np.arange(1.0, 7.0).reshape(2, 3)
    with standard_error() as text:
      results = test_util.run(mode, lambda: batch_reduce(ops, reduce_op, [
          spoilt(1, odd) for odd in ODD] + [spoilt(REPLICAS), spoilt(3)]))
    # Of replicas 1 to 4 times that; a sum of three stands for four.
    sums = [8 / 3 * 4] * 3 + [10, 6 / 3 * 4]
    for result, total in zip(results, sums, strict=True):
      for array in result.arrays:
        np.testing.assert_allclose(
            array, plain * total / (1 if reduce_op == SUM else REPLICAS),
            rtol=1e-6)
    if mode != "eager":  # Which logs.
      self.assertRegex(
          text[0], r"on_nonfinite=drop: left out of a sum: replica 1 of worker "
          r"0 .*tensor 0 of 5 .*; replica 3 of .*tensor 4 of 5 .*finite\.\n")
      self.assertEqual(text[0].count("on_nonfinite"), 1)

  def test_logs_in_eager_code(self):
    ops = make("drop")
    with self.assertLogs("absl", "WARNING") as logs:
      batch_reduce(ops, SUM, [spoilt(1)])
      batch_reduce(ops, SUM, [spoilt(REPLICAS)])
    self.assertLen(logs.output, 1)
    self.assertIn("left out of a sum: replica 1", logs.output[0])

  @parameterized.parameters(*test_util.MODES)
  def test_raises_when_none_is_left(self, mode):
    ops = make("drop")
    with self.assertRaisesRegex(
        tf.errors.InvalidArgumentError,
        "no replica is left to sum: replica 0 .*; replica 3 .*tensor 1 of 2"):
      test_util.run(mode, lambda: batch_reduce(ops, SUM, [
          spoilt(REPLICAS), each(lambda r: tf.constant([math.nan, r]))]))

  @parameterized.product(mode=test_util.MODES,
                         sparse=("gather", "deduplicate", "dense"),
                         reduce_op=(SUM, MEAN))
  def test_sparse(self, mode, sparse, reduce_op):
    ops = make("drop", sparse=sparse)
    results = []
    def emit():
      result, = batch_reduce(ops, reduce_op, [test_util.per_replica_slices(
          ([[1, 2], [3, 4]], [2, 0], [4, 2]), ([[7, math.nan]], [3], [4, 2]))])
      return [tf.convert_to_tensor(part) for part in result.values]
    with standard_error():
      results = test_util.run(mode, emit)
    scale = 2 if reduce_op == SUM else 1
    for result in results:
      np.testing.assert_array_equal(
          result.arrays[0], scale * np.array([[3, 4], [0, 0], [1, 2], [0, 0]]))

  def test_integers_are_left_alone(self):
    ops = make("drop")
    values = class_util.vectors([3], dtype=tf.int32)
    self.assertEqual(class_util.arrays(batch_reduce(ops, SUM, values)),
                     class_util.sums(values))

  @parameterized.parameters(*test_util.MODES)
  def test_of_every_kind(self, mode):
    # Sparse and dense, of several types, sizes and destinations.
    ops = make("drop")
    def emit() -> list[Any]:
      batch = [spoilt(2, dtype=tf.float64), *class_util.mixed_batch(),
               spoilt(1, dtype=tf.float16), spoilt(0)]
      pairs = [(value, value) for value in batch]
      pairs.append((spoilt(3), virtual_devices.names(2)[1]))
      return ops.batch_reduce(SUM, pairs)
    with standard_error() as text:
      results = test_util.run(mode, emit)
    plain = np.arange(1.0, 7.0).reshape(2, 3)
    for result, total in ((results[0], 7), (results[-3], 8), (results[-2], 9),
                          (results[-1], 6)):
      for array in result.arrays:
        np.testing.assert_allclose(array, plain * total / 3 * 4, rtol=1e-3)
    self.assertEqual(results[1:-3],
                     class_util.tensorflows_results(mode, SUM))
    if mode != "eager":
      self.assertRegex(text[0], "replica 0 .* tensor 12 of 14 .*; replica 1 .*"
                       "tensor 11 of 14 .*; replica 2 .*tensor 0 of 14")
      self.assertRegex(text[0], "replica 3 .* tensor 13 of 14")


class CleanTest(parameterized.TestCase):

  @parameterized.product(mode=test_util.MODES, reduce_op=(SUM, MEAN),
                         guard=("raise", "drop"))
  def test_results_are_what_they_were(self, mode, reduce_op, guard):
    ops = make(guard)
    with class_util.no_logs(self):
      self.assertEqual(
          test_util.run(mode, lambda: batch_reduce(
              ops, reduce_op, class_util.mixed_batch())),
          class_util.tensorflows_results(mode, reduce_op))

  @parameterized.product(guard=("raise", "drop"),
                         mode=("eager", "function"),
                         dtype=("float16", "bfloat16", "float32", "float64"))
  def test_no_alarm_for_finite_numbers(self, guard, mode, dtype):
    ops = make(guard)
    # The sum of it is finite, and the sum of its elements is not.
    most = float(tf.as_dtype(dtype).max) / (2 * REPLICAS)
    tiny = float(np.nextafter(0, 1, dtype=np.float32))
    rows = ([most] * 5, [-most, most, 0, -0.0, most], [tiny, -tiny, 0, 0, 0],
            [])
    with self.assertNoLogs("absl", "WARNING"), standard_error() as text:
      test_util.run(mode, lambda: batch_reduce(ops, SUM, [
          each(lambda r, row=row: tf.cast(tf.constant(row, tf.float64), dtype))
          for row in rows]))
    self.assertNotIn("on_nonfinite", text[0])

  def test_no_node_without_it(self):
    emitted = {
        guard: len(class_util.traced(lambda guard=guard: batch_reduce(
            make(guard), SUM, class_util.vectors([3, 4]))))
        for guard in (None, "raise", "drop")}
    plain = len(class_util.traced(lambda: batch_reduce(
        tf_cdops.MultiWorkerAllReduce(all_reduce_spec="xring"), SUM,
        class_util.vectors([3, 4]))))
    self.assertEqual(emitted[None], plain)
    self.assertGreater(emitted["raise"], plain)

  def test_gradients_pass(self):
    strategy = class_util.strategy_of(make("drop"), 2)
    def replica():
      x = tf.constant([1.0, 2.0])
      with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.distribute.get_replica_context().all_reduce(SUM, x * x)
      return tape.gradient(total, x)
    for one in strategy.experimental_local_results(
        strategy.run(tf.function(replica))):
      self.assertEqual(one.numpy().tolist(), [4.0, 8.0])

  @parameterized.product(kind_of=class_util.CLASSES,
                         wrong=("rais", True, "", 3))
  def test_refuses_other_modes(self, kind_of, wrong):
    hint = " Did you mean 'raise'" if wrong == "rais" else ""
    with self.assertRaisesRegex(
        ValueError, rf"`on_nonfinite` \({re.escape(repr(wrong))}\) must be "
        rf"None, 'raise' or 'drop'\.{hint}"):
      kind_of(on_nonfinite=wrong)


class KerasTest(parameterized.TestCase):

  @parameterized.parameters(*itertools.product(
      (1, 4), (False, True), ("raise", "drop")))
  def test_fit(self, steps, named, guard):
    strategy = class_util.strategy_of(make(guard, "auto"), 2)
    with strategy.scope():
      tf.keras.utils.set_random_seed(0)
      model = tf.keras.Sequential([
          tf.keras.layers.Input((3,)), tf.keras.layers.Dense(4, name="first"),
          tf.keras.layers.Dense(1, name="last")])
      model.compile("sgd", "mse", steps_per_execution=steps)
    x = np.ones([16, 3], "float32")
    y = np.ones([16, 1], "float32")
    callbacks = [tf_cdops.keras.NameGradients()] if named else []
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0,
              callbacks=callbacks)
    y[7] = math.nan  # Of the second step, on the last replica.
    name = r"\S*first/kernel \(" if named else ""
    if guard == "raise":
      with self.assertRaisesRegex(
          tf.errors.InvalidArgumentError,
          rf"replica 1 of worker 0 \(\S+\): {name}tensor 0 of 4"):
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    else:
      with standard_error() as text:
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
      self.assertRegex(text[0], rf"replica 1 of worker 0 \(\S+\): {name}tensor")
    for weight in model.get_weights():
      self.assertTrue(np.all(np.isfinite(weight)))

  def test_names_that_come_after_a_first_fit(self):
    strategy = class_util.strategy_of(make("raise", "auto"), 2)
    with strategy.scope():
      model = tf.keras.Sequential([tf.keras.layers.Input((3,)),
                                   tf.keras.layers.Dense(1, name="only")])
      model.compile("sgd", "mse")
    x, y = np.ones([4, 3], "float32"), np.ones([4, 1], "float32")
    model.fit(x, y, verbose=0)
    y[3] = math.nan
    named = tf_cdops.keras.NameGradients()
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError,
                                r"\S*only/kernel \(tensor 0 of 2"):
      model.fit(x, y, verbose=0, callbacks=[named])
    function = model.train_function
    model.fit(x[:2], y[:2], verbose=0, callbacks=[named])
    self.assertIs(model.train_function, function)  # They are known by now.


if __name__ == "__main__":
  absltest.main()
