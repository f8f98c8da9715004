"""What eager code keeps of functions with collective ops."""

import gc
import weakref

from absl.testing import absltest
from tests import virtual_devices
import tensorflow as tf

from tf_cdops.cluster import progress
from tf_cdops.execution import kept_functions


class KeptFunctionsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.traced = 0
    self.calls = []
    self.progress = progress.Progress()
    self.kept = kept_functions.KeptFunctions(
        virtual_devices.names(2), lambda: self.calls.append(1) or 0,
        self.progress.note)

  def emit(self, values):
    self.traced += 1
    return [[tf.convert_to_tensor(values[0]) + 1, values[1] + 1]]

  def run_on(self, first, second, alike=False):
    return self.kept.run("kind", self.emit, [first, second], alike)

  def test_one_function_for_values_that_are_alike(self):
    for value in (1.0, 2.0):
      (first, second), = self.run_on(tf.constant([value]), tf.constant(value))
      self.assertEqual((float(first[0]), float(second)), (value + 1,) * 2)
      self.assertIn("CPU:1", second.device)
    self.assertEqual((self.traced, len(self.calls)), (1, 2))
    self.assertEqual(self.progress.numbers[0], 2)
    self.run_on(tf.constant([1.0, 2.0]), tf.constant(1.0))
    slices = tf.IndexedSlices(tf.ones([1]), tf.constant([0]),
                              tf.constant([1]))
    (first, _), = self.run_on(slices, tf.constant(1.0))
    self.assertEqual(float(first[0]), 2.0)
    self.assertEqual(self.traced, 3)

  def shapes_of(self, first, second, alike=True):
    """Returns by how much the number that stands for shapes grows."""
    _, before = self.progress.numbers
    self.run_on(first, second, alike)
    return self.progress.numbers[1] - before

  def test_shapes_have_numbers(self):
    number = self.shapes_of(tf.ones([2, 3]), tf.ones([4]))
    self.assertEqual(self.shapes_of(tf.zeros([2, 3]), tf.zeros([4])), number)
    for first, second in (([3, 2], [4]), ([2, 3], [5]), ([4], [2, 3])):
      self.assertNotEqual(self.shapes_of(tf.ones(first), tf.ones(second)),
                          number)
    slices = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([0, 1]),
                              tf.constant([2, 3]))
    more = tf.IndexedSlices(tf.ones([3, 3]), tf.constant([0, 1, 2]),
                            tf.constant([3, 3]))
    self.assertEqual(self.shapes_of(slices, tf.ones([])),
                     self.shapes_of(more, tf.ones([])))

  def test_shapes_that_are_known_when_it_runs_have_numbers(self):

    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([3])])
    def call(first, second):
      return self.run_on(first, second, alike=True)

    numbers = []
    for length in (2, 7, 2):
      _, before = self.progress.numbers
      call(tf.ones([length]), tf.ones([3]))
      numbers.append(self.progress.numbers[1] - before)
    self.assertEqual(numbers[0], numbers[2])
    self.assertEqual(numbers[1], numbers[0] + 5)

  def test_values_are_not_kept(self):
    value = tf.ones([3])
    gone = weakref.ref(value)
    self.run_on(value, tf.constant(1.0))
    del value
    gc.collect()
    self.assertIsNone(gone())


if __name__ == "__main__":
  absltest.main()
