"""Tests of what happens when workers are missing, stop, die and come back."""

import contextlib
import json
import os
import re
import signal

from absl.testing import absltest
from tests import python_process

from tf_cdops.cluster import watchdog

_BOUND = 30.0  # Seconds within which a step with a lost worker must raise.

# Prints a JSON line for each fault. The last ends the process.
_SCRIPT = """\
    import gc, json, os, signal, socket, time
    import tensorflow as tf
    import tf_cdops
    from tf_cdops import cluster as cluster_lib

    start = time.monotonic()

    def tell(**facts):
      facts["seconds"] = time.monotonic() - start
      print(json.dumps(facts), flush=True)

    def failure(action):
      try:
        action()
      except Exception as error:
        return [type(error).__name__, str(error)]

    def counter(strategy):
      with strategy.scope():
        count = tf.Variable(0.0)

      def add():
        context = tf.distribute.get_replica_context()
        count.assign_add(context.all_reduce("mean", 1.0))

      step = tf.function(lambda: strategy.run(add))
      return count, step

    def kill(pid):
      os.kill(pid, signal.SIGKILL)
      os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def new_model(strategy):
      with strategy.scope():
        tf.keras.utils.set_random_seed(0)
        model = tf.keras.Sequential([
            tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
        model.compile("adam", "mse")
      return model

    def fit(model):
      x = tf.reshape(tf.range(24.0), [12, 2])
      model.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0)
      return [w.tolist() for w in model.get_weights()]

    def doubled_on_the_client(strategy):
      def double(_, values):
        with tf.device("/job:localhost/replica:0/task:0/device:CPU:0"):
          twice = tf.numpy_function(
              lambda value: value + value,
              [strategy.experimental_local_results(values)[0]], tf.float32)
        return tf.ensure_shape(twice, [])

      def step():
        context = tf.distribute.get_replica_context()
        there = context.merge_call(double, args=(tf.constant(3.0),))
        return context.all_reduce("mean", there)

      return [float(value) for value in strategy.experimental_local_results(
          tf.function(lambda: strategy.run(step))())]

    def killed_in_the_middle(strategy, pid):
      # A step that kills the worker itself, between two all-reduces.
      count, _ = counter(strategy)

      def send(before):
        kill(pid)
        tell(reached="the middle")
        return before

      def add():
        context = tf.distribute.get_replica_context()
        first = context.all_reduce("mean", count + 1.0)
        def kill_once(_, values):
          with tf.device("/job:localhost/replica:0/task:0/device:CPU:0"):
            once = tf.numpy_function(
                send, [strategy.experimental_local_results(values)[0]],
                tf.float32)
          once.set_shape([])
          return once
        sent = context.merge_call(kill_once, args=(first,))
        return context.all_reduce("mean", count + sent)

      tf.function(lambda: strategy.run(add))()

    with socket.socket() as unused:
      unused.bind(("127.0.0.1", 0))
      dead = f"127.0.0.1:{unused.getsockname()[1]}"
    with tf_cdops.LocalCluster(2) as cluster:
      first, second = cluster.as_dict()["worker"]
      tell(addresses=[first, second, dead])

      start = time.monotonic()
      tell(fault="unreachable", raised=failure(
          lambda: tf_cdops.multi_worker_strategy(
              {"worker": [first, dead]}, timeout=4.0)))

      os.kill(cluster.pid(1), signal.SIGSTOP)
      # On a busy machine its other threads run on for a moment.
      os.waitid(os.P_PID, cluster.pid(1), os.WSTOPPED | os.WNOWAIT)
      start = time.monotonic()
      tell(fault="stopped", raised=failure(
          lambda: tf_cdops.multi_worker_strategy(cluster, timeout=4.0)))
      os.kill(cluster.pid(1), signal.SIGCONT)

      strategy = tf_cdops.multi_worker_strategy(cluster)
      count, step = counter(strategy)
      for _ in range(3):
        step()
      lost = new_model(strategy)
      tell(fault="none", count=float(count.numpy()), weights=fit(lost),
           doubled=doubled_on_the_client(strategy))

      kill(cluster.pid(0))
      start = time.monotonic()
      tell(fault="killed before fit", raised=failure(lambda: fit(lost)))
      start = time.monotonic()
      tell(fault="killed before a step", raised=failure(step))
      cluster.restart(0)
      strategy = tf_cdops.multi_worker_strategy(cluster)
      model = new_model(strategy)
      start = time.monotonic()
      tell(fault="lost and used", raised=failure(lambda: fit(lost)))
      # What was lost is freed only now, among what is new.
      lost = count = step = None
      gc.collect()
      tell(fault="restarted before fit", weights=fit(model),
           doubled=doubled_on_the_client(strategy))

      start = time.monotonic()
      tell(fault="killed", raised=failure(
          lambda: killed_in_the_middle(strategy, cluster.pid(1))))

      cluster.restart(1)
      strategy = model = None  # Their variables went with the worker.
      strategy = tf_cdops.multi_worker_strategy(cluster)
      count, step = counter(strategy)
      step()  # Traced, and quick from now on.
      dog = cluster_lib.StepWatchdog(cluster, limit=3.0)
      with dog:
        step()
      tell(fault="restarted", count=float(count.numpy()))

      tell(stopped=cluster.pid(1))
      with dog:
        os.kill(cluster.pid(1), signal.SIGSTOP)
        step()
      tell(fault="not reached")
    """


class FaultTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.outcome = python_process.run_script(_SCRIPT)
    cls.lines = list(map(json.loads, cls.outcome.stdout.splitlines()))
    for line in cls.lines:
      if "stopped" in line:
        # Lest a failure here leave a stopped process for ever.
        with contextlib.suppress(ProcessLookupError):
          os.kill(line["stopped"], signal.SIGCONT)
    cls.faults = {line["fault"]: line for line in cls.lines if "fault" in line}

  def _raised(self, fault, kind, regex, bound=_BOUND):
    self.assertIn(fault, self.faults, self.outcome.stderr)
    line = self.faults[fault]
    self.assertRegex(line["raised"][0], f"^({kind})$", line)
    self.assertRegex(line["raised"][1], regex)
    self.assertLess(line["seconds"], bound)
    return line["raised"][1]

  def test_a_worker_that_can_not_be_reached_at_start(self):
    said = self._raised(
        "unreachable", "ClusterError", "^after 4 s: /job:worker/task:1 at "
        f"{re.escape(self.lines[0]['addresses'][2])} can't be reached")
    self.assertNotIn("task:0", said)

  def test_a_worker_that_is_stopped_at_start(self):
    said = self._raised(
        "stopped", "ClusterError", "^after 4 s: /job:worker/task:1 at "
        f"{re.escape(self.lines[0]['addresses'][1])} does not answer")
    self.assertNotIn("task:0", said)

  def test_a_worker_that_is_killed_in_a_step(self):
    self._raised("killed", "UnavailableError", "/job:worker/replica:0/task:1")
    self.assertIn("the middle", [line.get("reached") for line in self.lines])

  def test_a_worker_that_is_killed_before_fit(self):
    self._raised("killed before fit", "UnavailableError",
                 "/job:worker/replica:0/task:0")

  def test_a_worker_that_is_killed_before_a_step(self):
    self._raised("killed before a step", "UnavailableError",
                 "/job:worker/replica:0/task:0")

  def test_what_is_lost_says_so(self):
    self._raised("lost and used", "InvalidArgumentError|AbortedError",
                 "restarted|context_id")

  def test_what_is_lost_does_no_harm_when_it_is_freed(self):
    self.assertEqual(self.faults["restarted before fit"]["weights"],
                     self.faults["none"]["weights"])

  def test_the_client_has_ops_too_also_after_a_restart(self):
    for fault in ("none", "restarted before fit"):
      self.assertEqual(self.faults[fault]["doubled"], [6.0, 6.0], fault)

  def test_goes_on_after_a_restart(self):
    self.assertEqual(
        [self.faults[f]["count"] for f in ("none", "restarted")], [3.0, 2.0])

  def test_a_worker_that_is_stopped_in_a_step(self):
    self.assertEqual(self.outcome.returncode, watchdog.EXIT_CODE,
                     self.outcome.stderr)
    self.assertNotIn("not reached", self.faults)
    address = re.escape(self.lines[0]["addresses"][1])
    self.assertRegex(
        self.outcome.stderr, "tf_cdops: a step has not ended after 3 s: "
        f"/job:worker/task:1 at {address} does not answer. Ending the program")


_RESTARTED = """\
    import json, os, signal, weakref
    from tf_cdops.cluster import isolation
    isolation.enter_private_network()  # Before TensorFlow has any thread.
    import tensorflow as tf
    import tf_cdops
    from tf_cdops.fabric import engines

    tf.get_logger().setLevel("ERROR")  # It warns of so many tf.functions.
    SPECS = ("collective", "ps/collective", "collective/xring", "ps/xring")

    def outcome(strategy, spec, eager):
      def reduce():
        values = []
        for i, name in enumerate(strategy.extended.worker_devices):
          with tf.device(name):
            values.append(tf.fill([5], tf.constant(i + 1.0)))
        return [total[0] for total in tf_cdops.all_reduce(values, spec)]

      step = reduce if eager else tf.function(reduce)
      try:
        return {float(total) for _ in range(2) for total in step()} == {10.0}
      except Exception as error:
        return type(error).__name__ + ": " + str(error)

    with tf_cdops.LocalCluster(2, 2) as cluster:
      for restarted in ([], [1], [0, 1]):
        for task in restarted:
          os.kill(cluster.pid(task), signal.SIGKILL)
          cluster.restart(task)
        kept = weakref.ref(engines._kept()) if restarted else lambda: None
        strategy = tf_cdops.multi_worker_strategy(cluster)
        for spec in SPECS:
          print(json.dumps([restarted, spec, *(
              outcome(strategy, spec, eager) for eager in (False, True))]))
        assert kept() is None  # Functions and handles of what is lost.
    """


class RestartTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    outcome = python_process.run_script(_RESTARTED)
    if outcome.returncode:
      raise AssertionError(outcome.stderr)
    cls.outcomes = {(tuple(restarted), spec): rest for restarted, spec, *rest
                    in map(json.loads, outcome.stdout.splitlines())}

  def test_none_and_all(self):
    for restarted in ((), (0, 1)):
      for spec in ("collective", "ps/collective", "collective/xring",
                   "ps/xring"):
        self.assertEqual(self.outcomes[restarted, spec], [True, True],
                         (restarted, spec))

  def test_some_with_no_collective_between_workers(self):
    for spec in ("collective/xring", "ps/xring"):
      self.assertEqual(self.outcomes[(1,), spec], [True, True], spec)

  def test_some_with_a_collective_between_workers(self):
    for spec in ("collective", "ps/collective"):
      for said in self.outcomes[(1,), spec]:
        self.assertRegex(
            said, r"(?s)^ClusterError: .*/job:worker/task:1 was started again "
            r"and /job:worker/task:0 wasn't: .*Start all workers again, or")


if __name__ == "__main__":
  absltest.main()
