"""Tests of how many ops a worker runs at once."""

import os
from unittest import mock

from absl.testing import absltest
from tests import python_process

from tf_cdops.cluster import op_threads

_PROGRAM = """
    import tensorflow as tf
    from tf_cdops.cluster import spmd_arguments
    threading = tf.config.threading
    {before}
    spmd_arguments.add_threads()
    print(threading.get_inter_op_parallelism_threads())
"""


class OpThreadsTest(absltest.TestCase):

  def test_more_than_cores(self):
    with mock.patch.dict(os.environ):
      os.environ.pop("TF_NUM_INTEROP_THREADS", None)
      self.assertGreater(op_threads.count(), os.cpu_count())

  def test_the_environment_goes_before(self):
    with mock.patch.dict(os.environ, TF_NUM_INTEROP_THREADS="3"):
      self.assertEqual(op_threads.count(), 0)

  def test_a_programs_own_number_stays(self):
    for before, expected in (
        ("", op_threads.count()),
        ("threading.set_inter_op_parallelism_threads(5)", 5)):
      done = python_process.run_script(_PROGRAM.format(before=before))
      self.assertEqual(done.returncode, 0, done.stderr)
      self.assertEqual(int(done.stdout), expected)


if __name__ == "__main__":
  absltest.main()
