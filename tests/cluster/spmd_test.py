"""SpmdStrategy in real programs, one a worker, compared with one process."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from tests import python_process
from tests import spmd_model
from tests import virtual_devices

_PROGRAM = str(pathlib.Path(spmd_model.__file__).with_name("spmd_program.py"))


class SpmdTest(parameterized.TestCase):
  """Each test starts all programs anew."""

  def launch(self, workers, devices, part, *arguments, flags=(), fails=False):
    """Runs a part of spmd_program; returns what each worker wrote."""
    folder = self.create_tempdir().full_path
    done = python_process.run(
        "-m", "tf_cdops", "launch", f"--workers={workers}",
        f"--devices={devices}", *flags, _PROGRAM, folder, part, *arguments)
    if fails:
      self.assertNotEqual(done.returncode, 0, done.stdout)
      return done
    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    return [json.loads((pathlib.Path(folder) / f"{rank}.json").read_text())
            for rank in range(workers)]

  def assert_close(self, first, second):
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
        first, second)

  @parameterized.parameters((2, 1), (2, 2), (4, 1))
  def test_everything_is_as_in_one_process(self, workers, devices):
    written = self.launch(workers, devices, "check_all")
    expected = spmd_model.train(tf.distribute.get_strategy())
    for one in written:
      self.assert_close(one["fitted"], expected)
      # All replicas have the same bits, whatever a wire rounds.
      for name, bits in one["bits"].items():
        self.assertEqual(set(bits), set(written[0]["bits"][name][:1]))

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

  def test_a_first_batch_that_cannot_be_divided_is_told(self):
    done = self.launch(2, 1, "uneven", fails=True)
    self.assertRegex(
        done.stderr, r"`value` must have the same shape in all programs, and "
        r"has \(13, 5\); \(12, 5\), in their order.* give a batch size, and "
        r"as many examples, that the number of replicas \(2\) divides")

  def test_a_killed_worker_is_named_and_all_go_on_from_one_epoch(self):
    undisturbed = spmd_model.train_and_die(
        tf.distribute.get_strategy(), self.create_tempdir().full_path)
    written = self.launch(2, 1, "resume", "2", flags=["--max_restarts=1"])
    for one in written:
      self.assertEqual(one["fitted"]["epochs"], [2, 3])
      self.assert_close(one["fitted"]["weights"], undisturbed["weights"])

  def test_a_stuck_worker_is_named(self):
    done = self.launch(2, 1, "stuck", fails=True)
    self.assertEqual(done.returncode, 3, done.stderr)
    self.assertRegex(
        done.stderr, "a step has not ended after 8 s: /job:worker/task:1 at "
        r".* has not entered it \(it has made 4 calls of 5\)")

  def test_a_worker_that_is_stuck_in_its_input_is_named(self):
    done = self.launch(2, 1, "stuck_in_input", fails=True)
    self.assertEqual(done.returncode, 3, done.stderr)
    self.assertRegex(
        done.stderr, "a step has not ended after 8 s: /job:worker/task:1 at "
        "[^;]* has entered it, but has not come to its all-reduce")
    self.assertNotIn("task:0 at", done.stderr.partition(
        "a step has not ended")[2].partition("Ending")[0])


if __name__ == "__main__":
  absltest.main()
