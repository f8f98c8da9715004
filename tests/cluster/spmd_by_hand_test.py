"""Programs with SpmdStrategy that were started by hand, and lose one."""

import signal

from absl.testing import absltest
from absl.testing import parameterized
from tests import spmd_case


class ByHandTest(spmd_case.TestCase):
  """Programs without the launcher, which would see who has gone."""

  @parameterized.parameters(
      (2, 0, signal.SIGSTOP), (3, 1, signal.SIGSTOP), (3, 0, signal.SIGKILL))
  def test_the_others_end_and_name_who_is_gone(self, workers, target, number):
    programs = self.start(workers, "steps")
    for program in programs:
      self.assertEqual(program.wait_for_line(), "at work\n")
    programs.pop(target).process.send_signal(number)
    for program in programs:
      code, errors = program.wait()
      self.assertNotEqual(code, 0, errors)
      self.assertRegex(
          errors, rf"tf_cdops: /job:worker/task:{target} at \S+ (does not "
          r"answer|can't be reached \(.*\)): it has ended or is stopped, which "
          "may be the cause")


if __name__ == "__main__":
  absltest.main()
