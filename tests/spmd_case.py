"""Starts programs with SpmdStrategy, for tests."""

import json
import pathlib

from absl.testing import parameterized
import numpy as np
from tests import python_process
from tests import spmd_model
import tensorflow as tf

_FOLDER = pathlib.Path(spmd_model.__file__).parent


class TestCase(parameterized.TestCase):
  """Each test starts all programs anew."""

  def launch(self, workers, devices, part, *arguments, flags=(), fails=False,
             program="spmd_program"):
    """Runs a part of a program; returns what each worker wrote."""
    folder = self.create_tempdir().full_path
    done = python_process.run(
        "-m", "tf_cdops", "launch", f"--workers={workers}",
        f"--devices={devices}", *flags, str(_FOLDER / f"{program}.py"), folder,
        part, *arguments)
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
