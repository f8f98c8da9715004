"""Tests of what stands in for TensorFlow's missing public names."""

from absl.testing import absltest
import tensorflow as tf

from tf_cdops.base import tf_compat


class UnoptimizedTest(absltest.TestCase):

  def test_ops_may_still_be_placed_elsewhere(self):
    # A kind of device may have no kernel of some op.
    @tf.function
    def on_a_device_that_is_not_there(value):
      with tf.device("GPU:7"):
        return value + 1

    with tf_compat.unoptimized():
      self.assertEqual(on_a_device_that_is_not_there(tf.constant(2)), 3)


if __name__ == "__main__":
  absltest.main()
