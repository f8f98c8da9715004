"""Starts programs with SpmdStrategy, for tests."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import threading

from absl.testing import parameterized
import numpy as np
from tests import python_process
from tests import spmd_model
import tensorflow as tf

from tf_cdops.cluster import ports

_FOLDER = pathlib.Path(spmd_model.__file__).parent
_BOUND = 120.0  # Seconds; for programs to begin, and again to end.


@dataclasses.dataclass(frozen=True)
class Started:
  """A program that was started by hand, and where its errors go."""

  process: "subprocess.Popen[str]"
  errors: pathlib.Path

  def wait_for_line(self) -> str:
    """Returns the next that it prints; "" if none comes in time."""
    limit = threading.Timer(_BOUND, self.process.kill)
    limit.start()
    try:
      return self.process.stdout.readline()
    finally:
      limit.cancel()

  def wait(self) -> tuple[int, str]:
    """Returns its exit code, and what it has said of errors."""
    return self.process.wait(_BOUND), self.errors.read_text()


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

  def start(self, workers, part):
    """Starts programs as one does without the launcher; they end in time."""
    cluster = {"worker": [f"127.0.0.1:{port}"
                          for port in ports.find_free(workers)]}
    return [self._start(part, json.dumps({
        "cluster": cluster, "task": {"type": "worker", "index": index}}))
            for index in range(workers)]

  def _start(self, part, tf_config):
    folder = pathlib.Path(self.create_tempdir().full_path)
    with (folder / "errors").open("w") as errors:
      process = self.enter_context(subprocess.Popen(
          [sys.executable, str(_FOLDER / "spmd_program.py"), str(folder),
           part],
          env=python_process.environment() | {"TF_CONFIG": tf_config},
          stdout=subprocess.PIPE, stderr=errors, text=True))
    self.addCleanup(process.kill)  # Before it is waited for.
    return Started(process, folder / "errors")

  def assert_close(self, first, second):
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
        first, second)
