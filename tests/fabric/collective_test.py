"""The algorithm "collective" in several threads at once."""

from concurrent import futures
import threading
from unittest import mock

from tests import virtual_devices

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

import tf_cdops
from tests import test_util
from tf_cdops.fabric import thread_numbers

_DEVICES, _STEPS = 3, 20
_NAMES = virtual_devices.names(_DEVICES)
# Of NumPy: TensorFlow's own tf.fill isn't always right in eager threads.
_ARRAYS = (np.ones([5], np.float32), np.ones([2, 2], np.float32))
_TWO_WORKERS = tf_cdops.Topology.from_devices(_NAMES, [_NAMES[:2], _NAMES[2:]])


def sums(factor: tf.Tensor, spec: str = "collective",
         topology: tf_cdops.Topology | None = None) -> list[tf.Tensor]:
  """Sums factor, 2 factor and 3 factor, twice over, in two shapes."""
  results = []
  for array in _ARRAYS:
    placed = []
    for i, name in enumerate(_NAMES):
      with tf.device(name):
        placed.append(array * factor * (i + 1))
    results += tf_cdops.all_reduce(placed, spec, topology=topology)
  return results


def looping(factor: tf.Tensor) -> list[tf.Tensor]:
  for _ in tf.range(3):
    results = sums(factor)
  return results


def branching(factor: tf.Tensor) -> list[tf.Tensor]:
  return tf.cond(factor > 0.0, lambda: sums(factor), lambda: sums(-factor))


innermost = tf.function(sums)
inner = tf.function(lambda factor: tf.cond(
    factor > 0.0, lambda: innermost(factor), lambda: innermost(-factor)))


def nested(factor: tf.Tensor) -> list[tf.Tensor]:
  return innermost(factor) + tf.cond(
      factor > 0.0, lambda: inner(factor), lambda: inner(-factor))


class ThreadsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ("eager", sums), ("function", tf.function(sums)),
      ("loop", tf.function(looping)), ("branch", tf.function(branching)),
      ("functions_in_a_function", tf.function(nested)),
      ("in_pairs", tf.function(
          lambda x: sums(x, "collective/collective", _TWO_WORKERS))))
  def test_one_function_in_many(self, step):
    start = threading.Barrier(4, timeout=60)

    def work(number: int) -> set[float]:
      start.wait()
      return {float(tf.reduce_max(result)) for _ in range(_STEPS)
              for result in step(tf.constant(float(number)))}

    with futures.ThreadPoolExecutor(4) as pool:
      outcomes = list(pool.map(work, range(1, 5)))
    self.assertEqual(outcomes, [{6.0 * number} for number in range(1, 5)])

  def test_one_session_in_many(self):
    with tf.Graph().as_default(), test_util.session() as session:
      factor = tf.compat.v1.placeholder(tf.float32, [])
      results = sums(factor)
      with futures.ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(
            lambda number: {float(result.max()) for _ in range(_STEPS)
                            for result in session.run(
                                results, {factor: float(number)})},
            range(1, 5)))
    self.assertEqual(outcomes, [{6.0 * number} for number in range(1, 5)])


class ThreadNumbersTest(absltest.TestCase):

  def test_each_thread_has_its_own(self):
    together = threading.Barrier(8, timeout=60)

    def number(_: int) -> list[int]:
      together.wait()
      return [thread_numbers.current(), thread_numbers.current()]

    with futures.ThreadPoolExecutor(8) as pool:
      numbers = list(pool.map(number, range(8)))
    for first, second in numbers:
      self.assertEqual(first, second)
    self.assertLen({first for first, _ in numbers}, 8)

  def test_are_used_again(self):
    seen = set()
    for _ in range(50):
      thread = threading.Thread(
          target=lambda: seen.add(thread_numbers.current()))
      thread.start()
      thread.join()
    self.assertLess(len(seen), 10)

  def test_more_threads_than_numbers(self):
    with mock.patch.object(thread_numbers, "LIMIT", 0), (
        self.assertRaisesRegex(
            ValueError, "`algorithm` .'collective'. must be used by at most 0 "
            "threads at once")):
      tf.function(sums)(tf.constant(1.0))


if __name__ == "__main__":
  absltest.main()
