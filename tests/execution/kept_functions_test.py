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

  def run_on(self, first, second):
    return self.kept.run("kind", self.emit, [first, second])

  def test_one_function_for_values_that_are_alike(self):
    for value in (1.0, 2.0):
      (first, second), = self.run_on(tf.constant([value]), tf.constant(value))
      self.assertEqual((float(first[0]), float(second)), (value + 1,) * 2)
      self.assertIn("CPU:1", second.device)
    self.assertEqual((self.traced, len(self.calls)), (1, 2))
    self.assertEqual(self.progress.count, 2)
    self.run_on(tf.constant([1.0, 2.0]), tf.constant(1.0))
    slices = tf.IndexedSlices(tf.ones([1]), tf.constant([0]),
                              tf.constant([1]))
    (first, _), = self.run_on(slices, tf.constant(1.0))
    self.assertEqual(float(first[0]), 2.0)
    self.assertEqual(self.traced, 3)

  def test_values_are_not_kept(self):
    value = tf.ones([3])
    gone = weakref.ref(value)
    self.run_on(value, tf.constant(1.0))
    del value
    gc.collect()
    self.assertIsNone(gone())


if __name__ == "__main__":
  absltest.main()
