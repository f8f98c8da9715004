"""Programs with SpmdStrategy of which one is killed, or stuck."""

from absl.testing import absltest
from tests import spmd_case
from tests import spmd_model
import tensorflow as tf


class SpmdFaultTest(spmd_case.TestCase):

  def test_after_a_kill_all_go_on_from_one_epoch(self):
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

  def test_other_shapes_in_a_function_are_told(self):
    done = self.launch(2, 1, "other_shapes", fails=True)
    self.assertEqual(done.returncode, 3, done.stderr)
    self.assertRegex(
        done.stderr, "a step has not ended after 8 s: /job:worker/task:1 at "
        "[^;]* has come to an all-reduce of other shapes than "
        "/job:worker/task:0 at .*, which must be the same in all programs")


if __name__ == "__main__":
  absltest.main()
