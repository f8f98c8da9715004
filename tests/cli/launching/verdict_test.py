"""Tests of who is to blame when programs fail: pure."""

import signal

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.cli.launching import events
from tf_cdops.cli.launching import guard
from tf_cdops.cli.launching import verdict


def ended(*codes: tuple[int, int]) -> list[events.Ended]:
  """From pairs of a worker and its code, in the order of their ends."""
  return [events.Ended(f"worker {worker}", code) for worker, code in codes]


class FailedTest(parameterized.TestCase):

  @parameterized.parameters(
      ([(1, 7)], [], [], 7, "worker 1 failed with exit code 7."),
      ([(1, -9)], ["worker 0"], [], 137,
       "worker 1 was killed by SIGKILL; ending worker 0."),
      ([(0, 1), (1, 2)], [], [], 1, "worker 0 failed with exit code 1; then "
       "worker 1 failed with exit code 2."),
      # Seen later, but nobody is killed because another has failed.
      ([(0, 1), (1, -9)], [], [], 137, "worker 1 was killed by SIGKILL; then "
       "worker 0 failed with exit code 1."),
      # TensorFlow aborts those that have lost another.
      ([(0, 1), (1, -6)], [], [], 1, "worker 0 failed with exit code 1; then "
       "worker 1 was killed by SIGABRT."),
      ([(2, -6), (0, -9)], [], [], 137, "worker 0 was killed by SIGKILL; then "
       "worker 2 was killed by SIGABRT."),
      ([(0, -40)], [], [], 168, "worker 0 was killed by signal 40."),
      ([(0, 1)], ["worker 1", "worker 2", "worker 3"], ["worker 2"], 1,
       "worker 0 failed with exit code 1; worker 2 is stopped (SIGSTOP), which "
       "is the likely cause; ending worker 1, worker 2 and worker 3."),
      ([(2, 0), (0, 1)], [], [], 1, "worker 0 failed with exit code 1; worker "
       "2 had ended before, with exit code 0."))
  def test_message(self, codes, running, stopped, code, message):
    found = verdict.failed(ended(*codes), running, stopped)
    self.assertEqual((found.code, found.message), (code, message))
    self.assertTrue(found.restart)

  def test_many_names(self):
    found = verdict.failed(ended((0, 1)), [f"worker {i}" for i in range(1, 64)],
                           [])
    self.assertEndsWith(found.message, "worker 7, worker 8 and 55 more.")


class OtherEndsTest(parameterized.TestCase):

  def test_left_early(self):
    found = verdict.left_early(ended((2, 0)), ["worker 0", "worker 1"], 600.0)
    self.assertEqual(found.code, 1)
    self.assertTrue(found.restart)
    self.assertStartsWith(
        found.message, "worker 2 ended early, with exit code 0: 600 s later "
        "worker 0 and worker 1 still ran; ending them.")

  def test_stopped_long(self):
    found = verdict.stopped_long(["worker 1"], 40.0)
    self.assertEqual(found.code, 1)
    self.assertTrue(found.restart)
    self.assertEqual(
        found.message, "worker 1 has been stopped (SIGSTOP) for 40 s, for "
        "which the others can't wait; ending all.")

  @parameterized.parameters(
      (events.Told(signal.SIGINT), 130, "interrupted",
       [signal.SIGINT, signal.SIGTERM]),
      (events.Told(signal.SIGTERM), 143, "told to end (SIGTERM)",
       [signal.SIGTERM]),
      (events.Told(guard.ORPHANED), 138, "the launcher was killed",
       [signal.SIGTERM]),
      (events.OutputLost("nobody reads", 141), 141, "nobody reads",
       [signal.SIGTERM]))
  def test_told_to_end(self, event, code, message, signals):
    found = verdict.told(event)
    self.assertEqual((found.code, [number for number, _ in found.signals]),
                     (code, signals))
    self.assertEqual(found.message, f"{message}; ending all.")
    self.assertFalse(found.restart)


if __name__ == "__main__":
  absltest.main()
