"""Runs the examples, as their users do."""

from concurrent import futures
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process

from tf_cdops.cluster import interfaces


def run(name: str, *args: str) -> Any:
  return python_process.run(str(python_process.ROOT / "examples" / name), *args)


class FlagsTest(parameterized.TestCase):

  @parameterized.parameters(
      (("--all_reduce_spec=xring:64k:ps", "--num_packs=2", "--devices=3"),
       "MultiWorkerAllReduce(all_reduce_spec='xring:64k:ps', num_packs=2, ", 3),
      (("--cross_device_ops=nccl",), "NcclAllReduce(num_packs=1, ", 4))
  def test_trains(self, args, ops, replicas):
    outcome = run("train_with_flags.py", "--steps=40", *args)
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    first, *rest = outcome.stdout.splitlines()
    self.assertStartsWith(first, f"cross-device ops: {ops}")
    self.assertEqual(rest[0], f"replicas: {replicas}")
    # What it printed is what the data were made from.
    self.assertEqual(rest[-1], "weights: [2.0, -1.0, 0.5], bias: 3.0")

  @parameterized.parameters(
      (("--all_reduce_spec=xrng",),
       r"^FATAL Flags parsing error: flag --all_reduce_spec=xrng: .*"
       r"Did you mean 'xring'\?$"),
      (("--cross_device_ops=nccl", "--all_reduce_spec=ps"),
       r"^`--all_reduce_spec` \(ps\) has no meaning with"))
  def test_says_what_is_wrong(self, args, message):
    outcome = run("train_with_flags.py", *args)
    self.assertEqual(outcome.returncode, 1, outcome.stderr)
    self.assertEmpty(outcome.stdout)
    said = [line for line in outcome.stderr.splitlines()
            if "must be one of" in line or "has no meaning" in line]
    self.assertLen(said, 1, outcome.stderr)
    self.assertRegex(said[0], message)
    self.assertNotIn("Traceback", outcome.stderr)


class SeveralWorkersTest(absltest.TestCase):

  def _output(self, name):
    outcome = run(name)
    # The warning, and only where there is something to warn of.
    warned = interfaces.reachable_from_outside()
    self.assertEqual(
        (outcome.returncode, python_process.without_warning(outcome.stderr),
         outcome.stderr.count("\n")), (0, "", int(warned)))
    return outcome.stdout

  def test_keras(self):
    self.assertEqual(
        self._output("keras_several_workers.py"),
        "replicas: /job:worker/replica:0/task:0/device:CPU:0, "
        "/job:worker/replica:0/task:1/device:CPU:0\n"
        "loss: 0.0000\nweights: [2.0, -1.0, 0.5]\n")

  def test_one_program_a_worker(self):
    outcome = python_process.run(
        "-m", "tf_cdops", "launch", "--workers=2",
        str(python_process.ROOT / "examples" / "keras_spmd.py"),
        "--wire=bfloat16")
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    self.assertEqual(
        outcome.stdout, "[worker 0] replicas: 2\n[worker 0] loss: 0.0000\n"
        "[worker 0] weights: [2.0, -1.0, 0.5]\n")

  def test_v1_graph(self):
    # Replicas want 2 and 4, each step goes half the way to their mean.
    self.assertEqual(self._output("v1_graph.py"),
                     "losses: [0.5, 0.5]\n"
                     "weight on each worker: [3.0, 3.0]\n")


class RecoverTest(absltest.TestCase):

  def test_same_weights_with_and_without_a_loss(self):
    with futures.ThreadPoolExecutor() as pool:
      lost, calm = pool.map(
          lambda epoch: run("recover.py", "--epochs=2",
                            f"--lose_in_epoch={epoch}"), (1, -1))
    for outcome in (lost, calm):
      # TensorFlow 2.16 logs the lost connection, whatever its log level.
      self.assertEqual(outcome.returncode, 0, outcome.stderr)
      self.assertNotIn("Traceback", outcome.stderr)
    *story, weights = lost.stdout.splitlines()
    self.assertEqual(story[0], "worker 1 is killed")
    self.assertRegex(story[1], r"^epoch 1 failed: \w+Error$")
    self.assertRegex(weights, r"^weights:( -?\d+\.\d{6}){21}$")
    self.assertEqual(calm.stdout.splitlines(), [weights])


if __name__ == "__main__":
  absltest.main()
