"""Tests of what all commands of `python -m tf_cdops` have in common."""

import contextlib
import io
import os
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process

from tf_cdops.base import errors
from tf_cdops.cli import algorithms
from tf_cdops.cli import main


def run(*args: str):
  return python_process.run("-m", "tf_cdops", *args)


class CommandLineTest(parameterized.TestCase):

  @parameterized.parameters(
      ("explain", "--devcies=4",
       "tf_cdops explain: unrecognized arguments: --devcies=4. Did you mean "
       "'--devices' or '--device_type'? See tf_cdops explain --help.\n"),
      ("bench", "--devices=4x",
       "tf_cdops bench: argument --devices: invalid int value: '4x'. See "
       "tf_cdops bench --help.\n"))
  def test_wrong_usage_is_one_line(self, command, flag, line):
    done = run(command, flag)
    self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", line))

  def test_every_command_teaches(self):
    _, parsers = main._parsers()
    self.assertSameElements(parsers, [
        "algorithms", "bench", "demo", "doctor", "explain", "launch", "trace",
        "tune", "worker"])
    for name, parser in parsers.items():
      with self.subTest(name):
        text = parser.format_help()
        self.assertIn(parser.description.strip(), text)
        self.assertContainsInOrder(["--debug", "--json"], text)

  @parameterized.product(
      command=("bench", "demo", "doctor", "trace", "tune",
               "launch --client x.py"),
      flags=(("--bandwidth=1gbit", r"\(1gbit\) must come with --workers, .*; "
              r"give --workers=4, say, or leave it out\."),
             ("--bandwidth=fast", r"\('fast'\) must be a positive number with "
              r"a unit, .*"),
             ("--bandwidth=1gbit,fast", r"\('fast'\) must be a positive .*"),
             ("--bandwidth=1gbit,", r"\(''\) must be a positive .*"),
             ("--bandwidth=1gbit,100mbit,1000Mbit", r"\(1gbit,100mbit,"
              r"1000Mbit\) must have each rate once, and 1gbit and 1000Mbit "
              r"are the same; leave one out\.")))
  def test_wrong_bandwidths(self, command, flags):
    name, *rest = command.split()
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
      self.assertEqual(main.main([name, flags[0], *rest]), 2)
    self.assertRegex(stderr.getvalue(),
                     rf"^tf_cdops {name}: `--bandwidth` {flags[1]}\n$")

  @parameterized.parameters(
      "demo", "doctor", "trace", "tune", "launch --client x.py")
  def test_one_rate_only(self, command):
    name, *rest = command.split()
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
      self.assertEqual(main.main(
          [name, "--workers=2", "--bandwidth=100mbit,1gbit", *rest]), 2)
    self.assertEqual(
        stderr.getvalue(), f"tf_cdops {name}: `--bandwidth` (100mbit,1gbit) "
        "must be one rate; give one. Only `bench` takes several.\n")

  @parameterized.parameters(
      ([__file__], r"`PROGRAM` \(.*\) must have workers; give --workers=4, "
       "say, or on several machines --cluster and --task or TF_CONFIG, or "),
      (["--workers=2", "no/such.py"],
       r"`PROGRAM` \(no/such\.py\) must be a file that is there; mend its "),
      (["--client", "no/such.py"], r"`PROGRAM` \(no/such\.py\) must be a file"),
      (["--workers=65", "--client", "x.py"], r"`--workers` \(65\) must be"),
      (["--devices=0", "--client", "x.py"], r"`--devices` \(0\) must be"),
      (["--workers=2", "--cluster=a:1", "--task=0", "x.py"],
       r"`--workers` \(2\) must be left out with --cluster: .*; give one\."),
      (["--cluster=a:1", "x.py"], r"`--cluster` \(a:1\) must come with --task"),
      (["--task=0", "x.py"], r"`--task` \(0\) must come with --cluster"),
      (["--cluster=a:1,b:2", "--task=2", __file__],
       r"`--task` \(2\) must be one of the cluster's tasks: /job:worker/task:0 "
       r"at a:1, /job:worker/task:1 at b:2\.$"),
      (["--cluster=a:1", "--task=-1", __file__], r"`--task` \(-1\) must be "),
      (["--cluster=a", "--task=0", __file__], r"`address` \('a'\) must be "),
      (["--cluster=a:1", "--task=0", "--client", "x.py"],
       r"`--cluster` \(a:1\) must be left out with --client"),
      (["--max_restarts=1", "--client", "x.py"],
       r"`--max_restarts` \(1\) must be left out with --client"),
      (["--workers=2", "--max_restarts=-1", "x.py"],
       r"`--max_restarts` \(-1\) must be"),
      (["--workers=2", "--grace=0", "x.py"], r"`--grace` \(0\) must be "),
      (["--workers=2", "--grace=nan", "x.py"], r"`--grace` \(nan\) must be"),
      (["--workers=2", "--json", __file__], "`--json` must be left out"))
  def test_wrong_launches(self, args, regex):
    stderr = io.StringIO()
    with (contextlib.redirect_stderr(stderr),
          mock.patch.dict(os.environ, TF_CONFIG="")):
      self.assertEqual(main.main(["launch", *args]), 2)
    self.assertRegex(stderr.getvalue(), f"^tf_cdops launch: {regex}")

  def test_an_unknown_flag_of_launch(self):
    done = run("launch", "--wrokers=2", __file__, "--its=own")
    self.assertEqual((done.returncode, done.stdout, done.stderr), (
        2, "", "tf_cdops launch: unrecognized arguments: --wrokers=2. Did you "
        "mean '--workers' or '--verbosity'? See tf_cdops launch --help.\n"))

  def test_output_that_cannot_show_a_letter(self):
    done = python_process.run("-c", (
        "import sys\n"
        "from tf_cdops.cli import main\n"
        "sys.stdout.reconfigure(encoding='ascii')\n"
        "sys.exit(main.main(['explain', '--devices=2', '--sizes=4k']))"))
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    self.assertRegex(done.stdout, r"\d \?s waiting for steps")

  def test_what_tensorflow_says_when_it_is_loaded(self):
    """With a stand-in, since TensorFlow doesn't say it on every CPU."""
    folder = self.create_tempdir()
    folder.create_file("tensorflow.py", (
        "import os\n"
        "os.write(2, b'I0000 port.cc:153] oneDNN custom operations are on. '\n"
        "            b'You may see\\nsomething that matters\\n')\n"))
    done = python_process.run("-c", (
        "import os, sys\n"
        "from tf_cdops.cli import quiet_start\n"
        "sys.meta_path.insert(0, quiet_start.QuietLoading())\n"
        f"sys.path.insert(0, {folder.full_path!r})\n"
        "import tensorflow\n"
        "os.write(2, b'later\\n')"))
    self.assertEqual((done.returncode, done.stderr),
                     (0, "something that matters\nlater\n"))

  def test_a_reader_that_has_seen_enough(self):
    with subprocess.Popen(
        [sys.executable, "-m", "tf_cdops", "algorithms"], text=True,
        cwd=python_process.ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE) as process:
      process.stdout.close()
      self.assertEqual(process.stderr.read(), "")
      self.assertEqual(process.wait(60), 0)

  @parameterized.parameters(
      (errors.ClusterError("worker 1 is gone"), 1),
      (errors.InputError("`x` (1) must be 2."), 2),
      (KeyboardInterrupt(), 130))
  def test_exit_codes(self, error, code):
    def raise_it(args):
      raise error

    with mock.patch.object(algorithms, "run", raise_it):
      self.assertEqual(main.main(["algorithms"]), code)


if __name__ == "__main__":
  absltest.main()
