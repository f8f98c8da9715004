"""Tests of one worker's program."""

import os
import signal
import sys

from absl.testing import absltest

from tf_cdops.base import errors
from tf_cdops.cli.launching import events as events_lib
from tf_cdops.cli.launching import program


def start(*command: str, events: events_lib.Events) -> program.Program:
  return program.Program("worker 3", command, dict(os.environ),
                         lambda action: action(), events)


class ProgramTest(absltest.TestCase):

  def test_its_end_is_an_event(self):
    events = events_lib.Events()
    one = start(sys.executable, "-S", "-c", "raise SystemExit(5)",
                events=events)
    self.assertEqual(events.get(60.0), events_lib.Ended("worker 3", 5))
    self.assertFalse(one.runs)
    one.kill()  # Does no harm.
    for pipe in one.pipes:
      pipe.close()

  def test_signals_reach_all_of_it(self):
    events = events_lib.Events()
    one = start("/bin/sh", "-c", "sleep 1000 & echo; wait", events=events)
    stdout, stderr = one.pipes
    stdout.readline()
    self.assertTrue(one.runs)
    self.assertFalse(one.is_stopped)
    one.signal(signal.SIGTERM)
    self.assertEqual(events.get(60.0),
                     events_lib.Ended("worker 3", -signal.SIGTERM))
    self.assertEqual(stdout.read(), b"")  # Nobody has the pipe any more.
    stdout.close()
    stderr.close()

  def test_one_that_cannot_start(self):
    with self.assertRaisesRegex(
        errors.ClusterError, "^the program of worker 3 can't be started: No "
        "such file or directory. Mend that, or start fewer workers.$"):
      start("/no/such/program", events=events_lib.Events())


if __name__ == "__main__":
  absltest.main()
