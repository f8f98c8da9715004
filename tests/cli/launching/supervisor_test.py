"""Tests of a run of several programs, seen from inside."""

import os
import sys

from absl.testing import absltest

from tf_cdops.cli.launching import events as events_lib
from tf_cdops.cli.launching import output
from tf_cdops.cli.launching import places
from tf_cdops.cli.launching import program
from tf_cdops.cli.launching import supervisor


class SupervisorTest(absltest.TestCase):

  def test_an_end_of_an_earlier_run_is_not_of_this_one(self):
    events = events_lib.Events()
    # Its thread may be late to tell, when it was killed for a restart.
    events.put(events_lib.Ended("worker 0", -15, pid=1))
    one = program.Program(
        "worker 0", [sys.executable, "-S", "-c", ""], dict(os.environ),
        lambda start: start(), events)
    watch = supervisor._Watch([one], output.Output(events), events, 600.0)
    self.assertEqual(watch.wait().code, 0)
    for pipe in one.pipes:
      pipe.close()

  def test_assignments_have_ports_of_their_own(self):
    with places.this_machine(3, None) as place:
      first, second = place(0), place(1)
    self.assertEqual([each.name for each in first],
                     ["worker 0", "worker 1", "worker 2"])
    self.assertLen({each.tf_config for each in (*first, *second)}, 6)


if __name__ == "__main__":
  absltest.main()
