"""Who is said to keep a step waiting."""

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.cluster import addresses
from tf_cdops.cluster import blaming

_TASKS = tuple(addresses.Task("worker", index, f"host{index}:1")
               for index in range(3))


class BlamingTest(parameterized.TestCase):

  # What each tells: calls, all-reduces, and a number for shapes.
  @parameterized.parameters(
      (((5, 9, 70), (4, 8, 60), (5, 9, 70)),
       "/job:worker/task:1 at host1:1 has not entered it (it has made 4 calls "
       "of 5)"),
      (((5, 8, 60), None, (5, 9, 70)),
       "/job:worker/task:0 at host0:1 has entered it, but has not come to its "
       "all-reduce, as others have; it may wait for its input; "
       "/job:worker/task:1 at host1:1 does not answer"),
      (((5, 9, 70), (5, 9, 71), (5, 9, 70)),
       "/job:worker/task:1 at host1:1 has come to an all-reduce of other "
       "shapes than /job:worker/task:0 at host0:1, which must be the same in "
       "all programs"),
      # Who is behind has come to others for that reason.
      (((5, 8, 60), (5, 9, 70), (5, 9, 70)),
       "/job:worker/task:0 at host0:1 has entered it, but has not come to its "
       "all-reduce, as others have; it may wait for its input"),
      (((5, 9, 70), (5, 9, 70), (5, 9, 70)),
       "all workers have come to its all-reduce, so it may only be slow"),
      ((None, None, None), "; ".join(
          f"/job:worker/task:{i} at host{i}:1 does not answer"
          for i in range(3))))
  def test_words(self, told, words):
    self.assertEqual(blaming.who_is_late(5, _TASKS, told), words)


if __name__ == "__main__":
  absltest.main()
