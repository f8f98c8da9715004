"""SpmdStrategy's guard, in real programs."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import spmd_case


class SpmdGuardTest(spmd_case.TestCase):

  @parameterized.parameters((2, 1), (2, 2))
  def test_drops_and_raises_alike(self, workers, devices):
    written = self.launch(workers, devices, "drop",
                          program="spmd_guard_program")
    for one in written:
      self.assertRegex(
          one["error"], r"no replica is left to sum: replica 0 of worker 0 "
          r"\(\S+\): kernel \(tensor 0 of 2, shape \(2, 3\), float32\) has 1 "
          "element")
      self.assertIn(f"replica {workers * devices - 1} of worker "
                    f"{workers - 1}", one["error"])


if __name__ == "__main__":
  absltest.main()
