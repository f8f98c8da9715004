"""Starts programs with SpmdStrategy, for tests."""

import json
import pathlib

from absl.testing import parameterized
import numpy as np
from tests import python_process
from tests import spmd_model
import tensorflow as tf

_PROGRAM = str(pathlib.Path(spmd_model.__file__).with_name("spmd_program.py"))


class TestCase(parameterized.TestCase):
  """Each test starts all programs anew."""

  def launch(self, workers, devices, part, *arguments, flags=(), fails=False):
    """Runs a part of spmd_program; returns what each worker wrote."""
    folder = self.create_tempdir().full_path
    done = python_process.run(
        "-m", "tf_cdops", "launch", f"--workers={workers}",
        f"--devices={devices}", *flags, _PROGRAM, folder, part, *arguments)
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
