"""SpmdStrategy in real programs, one a worker, compared with one process."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import spmd_case
from tests import spmd_model
import tensorflow as tf


class SpmdTest(spmd_case.TestCase):

  @parameterized.parameters((2, 1), (2, 2), (4, 1))
  def test_everything_is_as_in_one_process(self, workers, devices):
    written = self.launch(workers, devices, "check_all")
    expected = spmd_model.train(tf.distribute.get_strategy())
    for one in written:
      self.assert_close(one["fitted"], expected)
      # All replicas have the same bits, whatever a wire rounds.
      for name, bits in one["bits"].items():
        self.assertEqual(set(bits), set(written[0]["bits"][name][:1]))


if __name__ == "__main__":
  absltest.main()
