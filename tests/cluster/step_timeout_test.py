"""The limit of a step, and the numbers that programs tell each other."""

import json
import socket
import textwrap
import threading

from absl.testing import absltest
from tests import python_process

from tf_cdops.cluster import side_channel

_LIMIT = 30.0
_PROGRAM = """
    import os
    import threading
    import time
    import tensorflow as tf
    from tf_cdops.cluster import step_timeout

    watch = step_timeout.StepTimeout(0.5, lambda n: f"nobody made call {n}")

    # As TensorFlow calls it: in a function of its own, which then waits.
    step_of_tensorflow = '''
    def step(seconds):
      watch.enter()
      time.sleep(seconds)
    '''
    exec(compile(step_of_tensorflow, os.path.join(
        os.path.dirname(tf.__file__), "function.py"), "exec"))

    def wait(seconds):
      time.sleep(seconds)

"""


class StepTimeoutTest(absltest.TestCase):

  def run_program(self, text):
    return python_process.run(
        "-c", textwrap.dedent(_PROGRAM) + textwrap.dedent(text))

  def test_a_call_that_does_not_end(self):
    done = self.run_program("""
        step(0.0)
        step(600.0)
    """)
    self.assertEqual(done.returncode, 3, done.stderr)
    self.assertEndsWith(
        done.stderr, "tf_cdops: a step has not ended after 0.5 s: nobody made "
        "call 2. Ending the program.\n")

  def test_pauses_between_calls_and_many_calls_are_no_steps(self):
    done = self.run_program("""
        for _ in range(20):
          step(0.1)
        step(0.0)
        wait(3.0)
        step(0.1)
        print(watch.count, threading.active_count())
    """)
    self.assertEqual((done.returncode, done.stdout), (0, "22 2\n"),
                     done.stderr)

  def test_tracing_is_no_step(self):
    done = self.run_program("""
        from tf_cdops.base import tf_compat

        @tf.function(autograph=False)
        def traced(value):
          time.sleep(3.0 * (value.shape[0] == 2))
          return value + tf.cast(tf_compat.value_at_call(watch.enter, "key"),
                                 tf.float32)

        for length in (1, 2):  # In one line, so as to look like one call.
          traced(tf.ones([length]))
        print(watch.count)
    """)
    self.assertEqual((done.returncode, done.stdout), (0, "2\n"), done.stderr)
    self.assertNotIn("a step has not ended", done.stderr)


class SideChannelTest(absltest.TestCase):

  def test_numbers_of_those_who_answer(self):
    numbers = iter([[7, 1], [8, 2]])
    channel = side_channel.SideChannel("127.0.0.1", lambda: next(numbers))
    self.addCleanup(channel.close)
    silent = socket.create_server(("127.0.0.1", 0))  # Says nothing.
    self.addCleanup(silent.close)
    with socket.create_server(("127.0.0.1", 0)) as gone:
      nobody = gone.getsockname()
    place = "127.0.0.1", channel.port
    self.assertEqual(
        side_channel.ask([place, silent.getsockname(), nobody], 1.0),
        [[7, 1], None, None])
    self.assertEqual(side_channel.ask([place], _LIMIT), [[8, 2]])

  def test_one_who_asks_and_does_not_read_keeps_nobody_waiting(self):
    channel = side_channel.SideChannel("127.0.0.1", lambda: (1, 2))
    self.addCleanup(channel.close)
    place = "127.0.0.1", channel.port
    with socket.create_connection(place):
      self.assertEqual(side_channel.ask([place], _LIMIT), [[1, 2]])

  def test_another_answer_is_none(self):
    with socket.create_server(("127.0.0.1", 0)) as server:

      def answer():
        connection, _ = server.accept()
        with connection:
          connection.sendall(json.dumps("seven").encode() + b"\n")

      thread = threading.Thread(target=answer)
      thread.start()
      self.assertEqual(side_channel.ask([server.getsockname()], _LIMIT),
                       [None])
      thread.join(_LIMIT)


if __name__ == "__main__":
  absltest.main()
