"""tf_cdops.keras on two workers, as on two devices of one machine."""

import functools
import json
import pathlib
import tempfile

from absl.testing import absltest
from tests import keras_models
from tests import keras_places
from tests import python_process
from tests import spmd_case

import tf_cdops

_CLIENT = """
    import json, pathlib, sys
    from tf_cdops.cluster import isolation
    isolation.enter_private_network()  # Before TensorFlow has any thread.
    from tests import keras_models
    import tf_cdops

    with tf_cdops.LocalCluster(num_workers=2) as cluster:
      strategy = tf_cdops.multi_worker_strategy(cluster)
      print(json.dumps(keras_models.train_mended(
          strategy, pathlib.Path(FOLDER))))
"""


@functools.cache
def _expected():
  with tempfile.TemporaryDirectory() as folder:
    return keras_models.train_mended(
        tf_cdops.keras.accept_uneven_batches(
            keras_places.strategy_for((2, "ours"))), pathlib.Path(folder))


class WorkersTest(spmd_case.TestCase):

  def test_two_steps_are_bad(self):
    self.assertEqual((_expected()["skipped steps"], _expected()["scale"]),
                     (2, 2.0 ** 8))

  def test_one_program_per_worker(self):
    for one in self.launch(2, 1, "mended"):
      self.assert_close(one["mended"], _expected())

  def test_one_client(self):
    folder = self.create_tempdir().full_path
    done = python_process.run_script(_CLIENT.replace("FOLDER", repr(folder)))
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assert_close(json.loads(done.stdout.splitlines()[-1]),
                      _expected())


if __name__ == "__main__":
  absltest.main()
