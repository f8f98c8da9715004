"""Tests of a run of several programs, seen from inside."""

import os
import signal
import sys
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.cli.launching import events as events_lib
from tf_cdops.cli.launching import output
from tf_cdops.cli.launching import places
from tf_cdops.cli.launching import program
from tf_cdops.cli.launching import supervisor


_BOUND = 60.0


class SupervisorTest(parameterized.TestCase):

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

  @parameterized.parameters(
      (1, _BOUND, "worker 0 has been stopped (SIGSTOP) for 0.2 s"),
      (2, 1.0, "told to end"))  # All together may be: then nobody waits.
  def test_who_is_stopped_for_long(self, stopped, told_after, message):
    events = events_lib.Events()
    scripts = ["import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
               "import signal; signal.pause()"]
    programs = [program.Program(
        f"worker {number}",
        [sys.executable, "-S", "-c", scripts[number >= stopped]],
        dict(os.environ), lambda start: start(), events)
                for number in range(2)]
    deadline = time.monotonic() + _BOUND
    while not all(one.is_stopped for one in programs[:stopped]):
      self.assertLess(time.monotonic(), deadline)
      time.sleep(0.01)
    watch = supervisor._Watch(programs, output.Output(events), events, 600.0)
    with (mock.patch.object(supervisor, "_STOPPED_SECONDS", 0.2),
          mock.patch.object(supervisor, "_TICK_SECONDS", 0.05)):
      timer = threading.Timer(
          told_after, lambda: events.put(events_lib.Told(signal.SIGTERM)))
      timer.start()
      found = watch.wait()
      timer.cancel()
    for one in programs:
      one.kill()
      for pipe in one.pipes:
        pipe.close()
    self.assertStartsWith(found.message, message)

  def test_assignments_have_ports_of_their_own(self):
    with places.this_machine(3, None) as place:
      first, second = place(0), place(1)
    self.assertEqual([each.name for each in first],
                     ["worker 0", "worker 1", "worker 2"])
    self.assertLen({each.tf_config for each in (*first, *second)}, 6)


if __name__ == "__main__":
  absltest.main()
