"""Threads, handles and memory stay flat; `make campaign` is the long form."""

from concurrent import futures
import json
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tests import python_process

# Steps of each algorithm, and of each pair of two: enough, with pairs too, to
# see a thread or a handle a step, of which 12 and 8 are let pass. What leaks
# little and seldom is for the long form.
_STEPS = {"function": (300, 30), "eager": (100, 20), "session": (100, 20),
          "workers": (100, 20)}
_LEAST_SPECS = 40  # Six algorithms run on CPUs, and all pairs of them.


def _run(mode: str):
  steps, pair_steps = _STEPS[mode]
  return python_process.run(
      "-m", "tests.long_run", f"--mode={mode}", f"--steps={steps}",
      f"--pair_steps={pair_steps}")


class LongRunTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    if sys.platform != "linux":
      raise absltest.SkipTest("What a process holds is read from Linux.")
    with futures.ThreadPoolExecutor(2) as pool:
      cls.outcomes = dict(zip(_STEPS, pool.map(_run, _STEPS), strict=True))

  @parameterized.parameters(*_STEPS)
  def test_nothing_grows(self, mode):
    outcome = self.outcomes[mode]
    lines = [json.loads(line) for line in outcome.stdout.splitlines()]
    self.assertEqual([line for line in lines if not line["flat"]], [])
    self.assertEqual(outcome.returncode, 0, outcome.stderr[-2000:])
    self.assertGreater(len(lines), _LEAST_SPECS)


if __name__ == "__main__":
  absltest.main()
