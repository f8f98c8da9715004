"""What Keras does with SpmdStrategy, and what programs are told."""

import pathlib

from absl.testing import absltest
from tests import spmd_case
from tests import spmd_model
from tests import virtual_devices
import tensorflow as tf


class SpmdKerasTest(spmd_case.TestCase):

  def test_keras_callbacks_files_and_weights_of_examples(self):
    written = self.launch(2, 1, "keras")
    folder = pathlib.Path(self.create_tempdir().full_path)
    expected = spmd_model.train_otherwise(tf.distribute.get_strategy(), folder)
    for one in written:
      self.assert_close(one["more"], expected)

  def test_three_workers_divide_a_batch_as_three_devices_do(self):
    written = self.launch(3, 1, "keras")
    expected = spmd_model.train(tf.distribute.MirroredStrategy(
        virtual_devices.names(3), tf.distribute.ReductionToOneDevice()))
    for one in written:
      self.assert_close(one["fitted"], expected)

  def test_programs_that_differ_are_told(self):
    done = self.launch(2, 1, "refuse", fails=True)
    self.assertRegex(
        done.stderr, "`bytes_per_pack` must be the same in all programs: "
        "/job:worker/task:0 at .* has 1000, and /job:worker/task:1 .* 1001")


if __name__ == "__main__":
  absltest.main()
