"""Tests of LocalCluster, of `tf_cdops worker` and of the private network.

Nothing here connects TensorFlow to a cluster, so most of it needs no process
of its own but the workers. Many of these are stand-ins, which start at once.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent import futures
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process
from tests import stand_in_worker

import tf_cdops
from tf_cdops.base import errors
from tf_cdops.cluster import addresses
from tf_cdops.cluster import ports
from tf_cdops.cluster import probing

_BOUND = 30.0  # Seconds; what is waited for takes a few on a busy machine.
_STAND_IN = stand_in_worker.PROGRAM
alive = stand_in_worker.alive
wait_until = stand_in_worker.wait_until


def listened_on(address: str) -> bool:
  host, port = addresses.split_address(address)
  with socket.socket() as probe:
    return probe.connect_ex((host, port)) == 0


def environment(**more: str) -> dict[str, str]:
  path = [python_process.without_extras(), str(python_process.ROOT),
          *filter(None, sys.path)]
  kept = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
  return kept | {"PYTHONPATH": os.pathsep.join(path)} | more


@contextlib.contextmanager
def started(*args: str, **env: str) -> Iterator["subprocess.Popen[str]"]:
  """A Python process, which ends with the block at the latest."""
  with subprocess.Popen(
      [sys.executable, *args], env=environment(**env), text=True,
      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
      stderr=subprocess.PIPE) as process:
    try:
      yield process
    finally:
      process.kill()


class _TestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    # Worker processes get this process's path.
    self.enter_context(mock.patch.object(
        sys, "path", [python_process.without_extras(), *sys.path]))

  def assert_gone(self, pids, cluster):
    for pid in pids:
      self.assertTrue(wait_until(lambda pid=pid: not alive(pid)), pid)
    for address in cluster["worker"]:
      # A process's threads can hold its sockets a little longer.
      self.assertTrue(wait_until(lambda a=address: not listened_on(a)), address)

  def executable(self, text: str) -> str:
    """Returns the path of a program with this text."""
    program = pathlib.Path(self.create_tempdir().full_path) / "program"
    program.write_text(text)
    program.chmod(0o755)
    return str(program)

  def stand_in(self, text: str) -> None:
    """Makes LocalCluster start this program instead of Python."""
    self.enter_context(
        mock.patch.object(sys, "executable", self.executable(text)))


class LocalClusterTest(_TestCase):

  def test_starts_restarts_and_stops(self):
    with tf_cdops.LocalCluster(2, 2) as cluster:
      described = cluster.as_dict()
      tasks = addresses.resolve(cluster).tasks
      self.assertLen(set(described["worker"]), 2)
      self.assertEqual(cluster.target(1), f"grpc://{tasks[1].address}")
      pids = [cluster.pid(0), cluster.pid(1)]
      self.assertEmpty(probing.silent(tasks, _BOUND))
      with self.assertRaisesRegex(errors.ClusterError, "runs already"):
        cluster.start()

      os.kill(pids[1], signal.SIGKILL)
      self.assertTrue(wait_until(lambda: not alive(pids[1])))
      self.assertContainsSubset([tasks[1]], probing.silent(tasks, _BOUND))
      cluster.restart(1)
      self.assertEqual(cluster.as_dict(), described)
      self.assertEmpty(probing.silent(tasks, _BOUND))
      self.assertEqual(cluster.pid(0), pids[0])
      self.assertNotEqual(cluster.pid(1), pids[1])
      pids.append(cluster.pid(1))
    self.assert_gone(pids, described)
    cluster.stop()
    with self.assertRaisesRegex(errors.ClusterError, "doesn't run"):
      cluster.as_dict()

  def test_starts_and_stops_side_by_side(self):
    # Two at a time; what starts more often, below, is a stand-in.
    def start_and_stop(_):
      with tf_cdops.LocalCluster(1, timeout=120) as cluster:
        described, pid = cluster.as_dict(), cluster.pid(0)
        self.assertEmpty(
            probing.silent(addresses.resolve(cluster).tasks, _BOUND))
      self.assert_gone([pid], described)
      return pid

    with futures.ThreadPoolExecutor(2) as pool:
      self.assertLen(set(pool.map(start_and_stop, range(2))), 2)

  def test_a_taken_port_is_replaced(self):
    with socket.socket() as taken:
      taken.bind(("0.0.0.0", 0))
      free = [[taken.getsockname()[1]], ports.find_free(1)]
      with (mock.patch.object(ports, "find_free", side_effect=free),
            tf_cdops.LocalCluster(1) as cluster):
        self.assertEqual(cluster.as_dict(),
                         {"worker": [f"127.0.0.1:{free[1][0]}"]})

  def test_without_tensorflow(self):
    blocker = pathlib.Path(self.create_tempdir().full_path)
    (blocker / "sitecustomize.py").write_text(textwrap.dedent("""\
        import sys
        sys.modules["tensorflow"] = None
        """))
    with (mock.patch.object(sys, "path", [str(blocker), *sys.path]),
          self.assertRaisesRegex(
              errors.ClusterError,
              r"(?s)^worker [01] ended with code \d+ instead of answering; it "
              "said:.*tensorflow")):
      tf_cdops.LocalCluster(2).start()


class StandInTest(_TestCase):
  """What LocalCluster does to its processes, whatever they run."""

  def test_starts_again_and_again(self):
    self.stand_in(_STAND_IN)
    cluster = tf_cdops.LocalCluster(2)
    for _ in range(5):
      with cluster:
        described = cluster.as_dict()
        pids = [cluster.pid(0), cluster.pid(1)]
      self.assert_gone(pids, described)

  @parameterized.parameters(KeyError, KeyboardInterrupt, SystemExit)
  def test_an_exception_ends_the_workers(self, kind):
    self.stand_in(_STAND_IN)
    pids, described = [], {}
    with (self.assertRaisesRegex(kind, "x"),
          tf_cdops.LocalCluster(2) as cluster):
      pids += [cluster.pid(0), cluster.pid(1)]
      described |= cluster.as_dict()
      raise kind("x")
    self.assertLen(pids, 2)
    self.assert_gone(pids, described)

  def test_an_interrupted_start_leaves_nothing(self):
    self.stand_in(_STAND_IN)
    cluster = tf_cdops.LocalCluster(2)
    pids = []
    def interrupt(*_):
      pids.extend([cluster.pid(0), cluster.pid(1)])
      raise KeyboardInterrupt("x")
    with (mock.patch.object(probing, "wait", interrupt),
          self.assertRaisesRegex(KeyboardInterrupt, "x")):
      cluster.start()
    self.assert_gone(pids, {"worker": []})
    self.assertLen(pids, 2)

  def test_a_stopped_worker_is_ended_too(self):
    self.stand_in(_STAND_IN)
    with tf_cdops.LocalCluster(1) as cluster:
      pid, described = cluster.pid(0), cluster.as_dict()
      os.kill(pid, signal.SIGSTOP)
    self.assert_gone([pid], described)

  def test_all_workers_lost_and_restarted_one_by_one(self):
    self.stand_in(_STAND_IN)
    with tf_cdops.LocalCluster(3) as cluster:
      for task in range(3):
        os.kill(cluster.pid(task), signal.SIGKILL)
      for task in range(3):
        pid = cluster.pid(task)
        self.assertTrue(wait_until(lambda pid=pid: not alive(pid)))
      for task in range(3):
        cluster.restart(task)
      self.assertEmpty(
          probing.silent(addresses.resolve(cluster).tasks, _BOUND))

  def test_restarts_a_worker_that_runs(self):
    self.stand_in(_STAND_IN)
    with tf_cdops.LocalCluster(1) as cluster:
      pid = cluster.pid(0)
      cluster.restart(0)
      self.assertFalse(alive(pid))
      self.assertTrue(alive(cluster.pid(0)))

  @parameterized.parameters("restart", "pid", "target")
  def test_no_such_worker(self, method):
    self.stand_in(_STAND_IN)
    with (tf_cdops.LocalCluster(1) as cluster,
          self.assertRaisesRegex(ValueError, r"`task` \(1\) must be")):
      getattr(cluster, method)(1)

  def test_a_worker_that_ends_is_quoted(self):
    self.stand_in("#!/bin/sh\necho no luck today >&2\nexit 7\n")
    cluster = tf_cdops.LocalCluster(1)
    with self.assertRaisesRegex(
        errors.ClusterError, r"^worker 0 ended with code 7 instead of "
        r"answering; it said:\nno luck today$"):
      cluster.start()
    with self.assertRaisesRegex(errors.ClusterError, "doesn't run"):
      cluster.pid(0)

  def test_a_worker_that_does_not_answer_is_quoted(self):
    self.stand_in("#!/bin/sh\necho still thinking\nexec sleep 60\n")
    with self.assertRaisesRegex(
        errors.ClusterError, r"(?s)^after 1 s: /job:worker/task:0 at 127\S+ "
        r"can't be reached .*still thinking"):
      tf_cdops.LocalCluster(1, timeout=1.0).start()

  def test_a_python_that_is_not_there(self):
    with (mock.patch.object(sys, "executable", "/no/such/python"),
          self.assertRaisesRegex(Exception, "/no/such/python")):
      tf_cdops.LocalCluster(1).start()

  def test_gives_up_after_three_taken_ports(self):
    log = pathlib.Path(self.create_tempdir().full_path) / "log"
    self.stand_in(f"#!/bin/sh\necho once >> {log}\n"
                  "echo Address already in use\nexit 1\n")
    with self.assertRaisesRegex(errors.ClusterError, "already in use"):
      tf_cdops.LocalCluster(1).start()
    self.assertEqual(log.read_text(), "once\n" * 3)


class ParentTest(_TestCase):
  """What is left of the workers when the program ends in another way."""

  _SCRIPT = """\
      import json, signal, sys, time
      import tf_cdops
      with tf_cdops.LocalCluster(2) as cluster:
        print(json.dumps([[cluster.pid(0), cluster.pid(1)],
                          cluster.as_dict()]), flush=True)
        signal.pause()
      """

  def test_interrupted(self):
    program = self.executable(_STAND_IN)
    script = f"import sys; sys.executable = {program!r}\n" + textwrap.dedent(
        self._SCRIPT)
    with started("-c", script) as parent:
      pids, described = json.loads(parent.stdout.readline())
      self.assertTrue(all(map(alive, pids)))
      parent.send_signal(signal.SIGINT)
      _, stderr = parent.communicate(timeout=_BOUND)
      self.assertEqual(parent.returncode, -signal.SIGINT, stderr)
      self.assert_gone(pids, described)

  def test_killed(self):
    with started("-c", textwrap.dedent(self._SCRIPT)) as parent:
      pids, described = json.loads(parent.stdout.readline())
      self.assertTrue(all(map(alive, pids)))
      os.kill(pids[1], signal.SIGSTOP)
      parent.kill()
      parent.wait(_BOUND)
      try:
        with self.subTest("a worker that runs"):
          self.assert_gone(pids[:1], {"worker": described["worker"][:1]})
        with self.subTest("a worker that is stopped"):
          self.assert_gone(pids[1:], {"worker": described["worker"][1:]})
      finally:
        if alive(pids[1]):
          os.kill(pids[1], signal.SIGKILL)


class WarningTest(_TestCase):
  """Servers listen on all interfaces; is that said where it matters?"""

  _SCRIPT = """\
      import sys
      from tf_cdops.cluster import isolation
      private = {private} and isolation.enter_private_network()
      import tf_cdops
      from tf_cdops.cluster import interfaces
      sys.executable = {program!r}
      for _ in range(2):
        with tf_cdops.LocalCluster(1):
          pass
      print(private, interfaces.reachable_from_outside())
      """
  _WARNING = (r"^WARNING:absl:LocalCluster: TensorFlow's servers have no "
              r"authentication and listen on all interfaces[^\n]*\n$")

  def _said(self, private, *wrapper):
    """Returns what the script prints, run by `wrapper` if there is one."""
    script = textwrap.dedent(self._SCRIPT.format(
        private=private, program=self.executable(_STAND_IN)))
    outcome = subprocess.run(
        [*wrapper, sys.executable, "-c", script], capture_output=True,
        text=True, timeout=4 * _BOUND, check=False,
        env=environment(TF_CPP_MIN_LOG_LEVEL="3"))
    if not wrapper:
      self.assertEqual(outcome.returncode, 0, outcome.stderr)
    return outcome.stdout, outcome.stderr

  def test_once_where_others_can_reach_them(self):
    stdout, stderr = self._said(False)
    if stdout != "False True\n":
      self.skipTest("this machine has no network")
    self.assertRegex(stderr, self._WARNING)

  def test_not_in_a_private_network(self):
    stdout, stderr = self._said(True)
    if stdout.startswith("False"):
      self.skipTest("this system allows no private network")
    self.assertEqual((stdout, stderr), ("True False\n", ""))

  def test_once_where_no_private_network_is_possible(self):
    if shutil.which("unshare") is None:
      self.skipTest("this system has no unshare")
    stdout, stderr = self._said(
        True, "unshare", "--user", "--map-root-user", "sh", "-c",
        'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"', "sh")
    if stdout != "False True\n":
      self.skipTest("this system has no user namespaces, or no network")
    self.assertRegex(stderr, self._WARNING)


class WorkerTest(_TestCase):

  def _check_serves(self, args, env, port, name):
    with started("-m", "tf_cdops", "worker", *args, **env) as worker:
      line = worker.stdout.readline()
      self.assertRegex(
          line, rf"^Serving {name} at 127\.0\.0\.1:{port} "
          rf"\(grpc://\S*:{port}\)\.\n$", "")
      task = addresses.Task("worker", 0, f"127.0.0.1:{port}")
      self.assertIsNone(probing.answers(task, _BOUND))
      worker.send_signal(signal.SIGTERM)
      stdout, stderr = worker.communicate(timeout=_BOUND)
    self.assertEqual((worker.returncode, stdout),
                     (0, "tf_cdops worker: stopped\n"))
    self.assertRegex(stderr, r"^Warning: TensorFlow's servers have no "
                     r"authentication and listen on all interfaces.*\n$")

  def test_from_flags(self):
    port, other = ports.find_free(2)
    self._check_serves(
        [f"--cluster=127.0.0.1:{other},127.0.0.1:{port}", "--task=1",
         "--cpu_devices=2"], {}, port, "/job:worker/task:1")

  def test_from_tf_config(self):
    port, other = ports.find_free(2)
    config = {"cluster": {"worker": [f"127.0.0.1:{other}"],
                          "chief": [f"127.0.0.1:{port}"]},
              "task": {"type": "chief", "index": 0}}
    self._check_serves([], {"TF_CONFIG": json.dumps(config)}, port,
                       "/job:chief/task:0")

  def test_a_port_in_use(self):
    with socket.create_server(("", 0)) as other:
      port = other.getsockname()[1]
      outcome = python_process.run(
          "-m", "tf_cdops", "worker", f"--cluster=127.0.0.1:{port}", "--task=0")
    self.assertEqual((outcome.returncode, outcome.stdout), (1, ""))
    self.assertRegex(outcome.stderr, rf"^tf_cdops worker: port {port} of this "
                     r"machine must be free, and isn't: .*\.\n$")

  def test_wrong_usage(self):
    cluster = "--cluster=127.0.0.1:1,127.0.0.1:2"
    one = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"'
    cases = [
        ([], "", "there is no cluster: give --cluster and --task, or set "
         r"TF_CONFIG\."),
        ([cluster], "", "`--task` .* must be one of the cluster's tasks: "
         r"/job:worker/task:0 at 127\.0\.0\.1:1, /job:worker/task:1 at"),
        ([cluster, "--task=2"], "", r"`--task` \(/job:worker/task:2\) must be"),
        ([cluster, "--task=0", "--job=chief"], "", r"\(/job:chief/task:0\)"),
        ([cluster, "--task=0", "--cpu_devices=0"], "",
         r"`--cpu_devices` \(0\) must be a whole number of at"),
        (["--cluster={bad", "--task=0"], "", "isn't right JSON"),
        (["--cluster=nohost", "--task=0"], "",
         r"`address` \('nohost'\) must be host:port"),
        ([], "{bad", "`TF_CONFIG` .* isn't right JSON"),
        ([], "a:1,b:2", "TF_CONFIG"),
        ([], one + ', "index": 7}}', r"TF_CONFIG.*\b7\b"),
        ([], '{"cluster": ["a:1"]}', r"`cluster` \(\['a:1'\]\) must be a dict"),
    ]
    # All in one process: each would load TensorFlow again.
    script = f"""\
        import contextlib, io, json, os, traceback
        from tf_cdops.cli import main
        outcomes = []
        for args, config in {[(a, c) for a, c, _ in cases]!r}:
          os.environ["TF_CONFIG"] = config
          err = io.StringIO()
          with contextlib.redirect_stderr(err):
            try:
              code = main.main(["worker", *args])
            except Exception:
              code = traceback.format_exc()
          outcomes.append([code, err.getvalue()])
        print(json.dumps(outcomes))
        """
    outcome = python_process.run_script(script)
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    outcomes = json.loads(outcome.stdout)
    self.assertLen(outcomes, len(cases))
    for (args, config, regex), (code, stderr) in zip(cases, outcomes,
                                                     strict=True):
      with self.subTest(args=args, config=config):
        self.assertEqual(code, 2)
        self.assertRegex(stderr, rf"^tf_cdops worker: .*{regex}")
        self.assertEqual(stderr.count("\n"), 1, stderr)


class IsolationTest(absltest.TestCase):

  def test_only_loopback_is_there_and_works(self):
    outcome = python_process.run_script("""\
        import json, os, socket
        before = os.geteuid()
        from tf_cdops.cluster import isolation
        entered = isolation.enter_private_network()
        with socket.create_server(("127.0.0.1", 0)) as listening:
          with socket.create_connection(listening.getsockname(), timeout=10):
            pass
        names = [name for _, name in socket.if_nameindex()]
        print(json.dumps([entered, names, os.geteuid() == before]))
        """)
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    entered, names, same_user = json.loads(outcome.stdout)
    self.assertTrue(same_user)
    if not entered:
      self.skipTest("this system allows no private network")
    # Some kernels put tunnels, which are down, into every new network.
    up = [name for name in names
          if name == "lo" or not name.startswith(("tunl", "sit", "gre", "ip",
                                                  "erspan"))]
    self.assertEqual(up, ["lo"])


if __name__ == "__main__":
  absltest.main()
