"""Tests of `python -m tf_cdops demo` and of the command line around it."""

import re

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process
from tests import virtual_devices

import tensorflow as tf

from tf_cdops.base import version
from tf_cdops.cli import digits

# What a LocalCluster says where no private network is possible.
_NO_NETWORK = re.compile(
    r"^WARNING:absl:LocalCluster: TensorFlow's servers have no [^\n]*\n$")


def run(*args: str, extras: tuple[str, ...] = ()):
  return python_process.run("-m", "tf_cdops", *args, extras=extras)


class DemoTest(absltest.TestCase):

  def test_trains(self):
    # One pass over the data isn't enough to learn, six are.
    outcomes = python_process.run_commands(
        [["demo", f"--epochs={epochs}", "--devices=2"] for epochs in (1, 6)],
        extras=("sklearn",))
    for outcome, returncode, verdict in zip(
        outcomes, (1, 0), ("The demo FAILED.", "The demo passed."),
        strict=True):
      with self.subTest(verdict):
        self.check(outcome, returncode, verdict)

  def check(self, outcome, returncode, verdict):
    self.assertEqual((outcome.returncode, outcome.stderr), (returncode, ""),
                     outcome.stdout)
    self.assertEndsWith(outcome.stdout, f"{verdict}\n")
    cells = dict(re.findall(r"│ (\S[^│]*?) +│ (\S[^│]*?) +│", outcome.stdout))
    accuracy = re.fullmatch(r"([\d.]+)% \(at least 90% wanted\)",
                            cells.pop("accuracy on held-out data"))
    self.assertEqual(float(accuracy[1]) >= 90, returncode == 0)
    self.assertRegex(cells.pop("step time, median"), r"^\d+\.\d ms$")
    self.assertContainsSubset({
        "replicas": "2",
        "all-reduced each step": "8 tensors, 172,200 bytes a replica",
        "replicas bit-identical": "yes, 26 variables compared",
    }.items(), cells.items())

  def test_several_workers(self):
    outcome = run("demo", "--workers=2", "--devices=1", "--epochs=4",
                  "--all_reduce_spec=xring", extras=("sklearn",))
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    if not _NO_NETWORK.search(outcome.stderr):
      self.assertEqual(outcome.stderr, "")
    self.assertRegex(outcome.stdout, "(?s)all-reduce spec +│ xring .*"
                     "replicas +│ 2 .*bit-identical +│ yes.*demo passed")

  def test_wrong_usage(self):
    cases = [
        (["demo", "--devices=0"],
         r"^tf_cdops demo: `--devices` \(0\) must be from 1 to 16\.\n$"),
        (["demo", "--devices=17"],
         r"`--devices` \(17\) must be from 1 to 16"),
        (["demo", "--epochs=-1"],
         r"`--epochs` \(-1\) must be from 1 to 1,000"),
        (["demo", "--epochs=x"], "argument --epochs: invalid int value: 'x'"),
        (["demo", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["nonsense"], r"invalid choice: 'nonsense' \(choose from .*demo"),
        ([], "the following arguments are required: COMMAND"),
    ]
    outcomes = python_process.run_commands([args for args, _ in cases])
    for (args, regex), outcome in zip(cases, outcomes, strict=True):
      with self.subTest(args=args):
        self.assertEqual((outcome.returncode, outcome.stdout), (2, ""))
        self.assertRegex(outcome.stderr, regex)
        self.assertNotIn("Traceback", outcome.stderr)

  def test_debug_shows_the_traceback(self):
    outcome = run("demo", "--debug", "--devices=0")
    self.assertEqual(outcome.returncode, 1)
    self.assertRegex(outcome.stderr, r"(?s)^Traceback.*InputError: `--devices`")

  def test_without_scikit_learn(self):
    outcome = run("demo")
    self.assertEqual(
        (outcome.returncode, outcome.stdout, outcome.stderr),
        (2, "", "tf_cdops demo: the demo's data come with scikit-learn; "
         "install it with `pip install 'tf-cdops[demo]'`.\n"))

  def test_help(self):
    cases = [
        (["--help"],
         r"(?s)^usage: tf_cdops .*commands:.*demo +Trains a small"),
        (["demo", "--help"], r"(?s)--devices N.*default: 4.*--epochs N.*: 15"),
        (["--version"], rf"^tf_cdops {re.escape(version.__version__)}\n$"),
    ]
    outcomes = python_process.run_commands([args for args, _ in cases])
    for (args, regex), outcome in zip(cases, outcomes, strict=True):
      with self.subTest(args=args):
        self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
        self.assertRegex(outcome.stdout, regex)


class IdenticalTest(parameterized.TestCase):

  @parameterized.parameters(
      (1.0, True), (1.0 + 2.0**-23, False), (-1.0, False))
  def test_compares_bits(self, value, expected):
    self._check(1.0, value, expected)

  def test_signs_of_zero_are_bits_too(self):
    self._check(0.0, -0.0, False)

  def _check(self, initial: float, value: float, expected: bool) -> None:
    strategy = tf.distribute.MirroredStrategy(virtual_devices.names(3))
    with strategy.scope():
      variable = tf.Variable([5.0, initial])
    self.assertTrue(digits._identical(strategy, variable))
    variable.values[2].assign([5.0, value])
    self.assertEqual(digits._identical(strategy, variable), expected)


if __name__ == "__main__":
  absltest.main()
