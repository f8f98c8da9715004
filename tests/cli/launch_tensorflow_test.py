"""Tests of `launch` with TensorFlow's own strategy of one program a worker."""

import os
import re
import subprocess
import sys

from absl.testing import absltest
from tests import python_process

_BOUND = 280.0
_PROGRAM = """\
import json, os, signal
import tensorflow as tf
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
restart = int(os.environ["TF_CDOPS_RESTART"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()

@tf.function
def step(number):
  def sum_up():
    context = tf.distribute.get_replica_context()
    return context.all_reduce("sum", tf.identity(number))
  return strategy.run(sum_up)

for number in range(10):
  total = step(tf.constant(10.0 * restart + index + 1))
  if number == 2:
    print("sum", float(total))
    if restart == 0 and index == 1:
      os.kill(os.getpid(), signal.SIGKILL)
"""


class LaunchTensorFlowTest(absltest.TestCase):

  def test_sums_and_a_restart(self):
    script = self.create_tempfile("train.py", _PROGRAM).full_path
    path = [python_process.without_extras(), str(python_process.ROOT),
            *filter(None, sys.path)]
    kept = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    done = subprocess.run(
        [sys.executable, "-m", "tf_cdops", "launch", "--workers=2",
         "--devices=1", "--max_restarts=2", script], capture_output=True,
        text=True, timeout=_BOUND, check=False,
        env=kept | {"PYTHONPATH": os.pathsep.join(path),
                    "TF_CPP_MIN_LOG_LEVEL": "3"})
    self.assertEqual(done.returncode, 0, done.stderr)
    said = done.stdout.splitlines()
    # Worker 0 may learn of the other's end before it prints its sum.
    self.assertIn("[worker 1] sum 3.0", said)
    for worker in range(2):
      self.assertEqual(said.count(f"[worker {worker}] sum 23.0"), 1, said)
    self.assertLen(re.findall("starting again", done.stderr), 1)
    self.assertIn("tf_cdops launch: worker 1 was killed by SIGKILL; ",
                  done.stderr)


if __name__ == "__main__":
  absltest.main()
