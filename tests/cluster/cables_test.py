"""Tests of LocalCluster(bandwidth=…) and of `launch`, with real namespaces.

One test has TensorFlow's servers; the workers of the others are stand-ins. A
process that lays cables must enter its network first, so each is a script.
"""

import contextlib
import glob
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
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import cable_support
from tests import python_process
from tests import stand_in_worker

import tf_cdops
from tf_cdops.base import errors
from tf_cdops.cluster import cables

_BOUND = 60.0  # Seconds; what is waited for takes a few on a busy machine.
_NOBODY = 65534
# Serves as a worker, and runs everything else as Python does.
_STAND_IN = stand_in_worker.PROGRAM.replace("\n", f"""
import os, sys
if "worker" not in sys.argv:
  os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
""", 1)


def environment(**more: str) -> dict[str, str]:
  path = [str(python_process.ROOT), *filter(None, sys.path)]
  kept = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
  return kept | {"PYTHONPATH": os.pathsep.join(path),
                 "TF_CPP_MIN_LOG_LEVEL": "3"} | more


def users_of(namespaces: set[str]) -> list[str]:
  """Returns the processes in these namespaces, or with one of them open."""
  found = []
  for path in [*glob.glob("/proc/[0-9]*/ns/net"),
               *glob.glob("/proc/[0-9]*/fd/*")]:
    with contextlib.suppress(OSError):
      if os.readlink(path) in namespaces:
        found.append(path)
  return found


class _TestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    if cable_support.why_not():
      self.skipTest(f"no cables: {cable_support.why_not()}")
    self.folder = pathlib.Path(self.create_tempdir().full_path)
    self.interfaces = socket.if_nameindex()

  def write(self, name: str, text: str) -> str:
    path = self.folder / name
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return str(path)

  def command(self, script: str, *args: str) -> list[str]:
    """Returns what runs a script by `launch`, with stand-ins for workers."""
    program = self.write("worker", _STAND_IN)
    launching = self.write("launching.py", f"""\
        import sys
        sys.executable = {program!r}
        from tf_cdops.cli import main
        sys.exit(main.main(["launch", *sys.argv[1:]]))
        """)
    return [sys.executable, launching, *args, "--client", self.write(
        "script.py", f"import sys; sys.executable = {program!r}\n"
        + textwrap.dedent(script))]

  @contextlib.contextmanager
  def launched(self, script: str, *args: str
               ) -> Iterator["subprocess.Popen[str]"]:
    """A script run by `launch`, which ends with the block at the latest."""
    with subprocess.Popen(
        self.command(script, *args), env=environment(), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True) as process:
      try:
        yield process
      finally:
        process.kill()

  def finished(self, command: list[str], **kwargs
               ) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, env=environment(), text=True,
                          capture_output=True, timeout=_BOUND, check=False,
                          **kwargs)

  def assert_nothing_is_left(self, namespaces, pids=()):
    for pid in pids:
      self.assertTrue(stand_in_worker.wait_until(
          lambda pid=pid: not stand_in_worker.alive(pid)), f"{pid} runs")
    self.assertTrue(
        stand_in_worker.wait_until(lambda: not users_of(set(namespaces))),
        f"used: {users_of(set(namespaces))}")
    self.assertEqual(socket.if_nameindex(), self.interfaces)


class ShapedClusterTest(_TestCase):

  def test_exact_sums_over_real_cables(self):
    outcome = python_process.run_script("""\
        import json, os, re, socket, subprocess
        from tf_cdops.cluster import cables
        cables.enter_network(shaped=True)
        import numpy as np
        import tensorflow as tf
        import tf_cdops

        def shaping(interface):
          show = [cables._path("tc"), "-s", "class", "show", "dev", interface]
          said = subprocess.run(show, capture_output=True, text=True,
                                timeout=30, check=True).stdout
          return [re.search(r"htb .* rate (\\S+) ceil (\\S+)", said).groups(),
                  int(re.search(r"Sent (\\d+) bytes", said)[1])]

        with tf_cdops.LocalCluster(2, bandwidth="400mbit") as cluster:
          strategy = tf_cdops.multi_worker_strategy(
              cluster, tf_cdops.MultiWorkerAllReduce(all_reduce_spec="xring"))

          @tf.function
          def step():
            def sum_up():
              context = tf.distribute.get_replica_context()
              mine = tf.range(1_000_000) % 1000 + tf.cast(
                  context.replica_id_in_sync_group, tf.int32)
              return context.all_reduce("sum", tf.cast(mine, tf.float32))
            return strategy.run(sum_up)

          sums = strategy.experimental_local_results(step())
          expected = 2 * (np.arange(1_000_000) % 1000) + 1
          print(json.dumps({
              "right": [bool(np.array_equal(each, expected)) for each in sums],
              "cluster": cluster.as_dict()["worker"],
              "interfaces": [name for _, name in socket.if_nameindex()],
              "sent": [cluster._cables.run_on_host(
                  i, lambda: shaping("eth0")) for i in range(2)],
              "received": [shaping(f"cable0-{i}") for i in range(2)],
              "namespaces": [os.readlink(f"/proc/{pid}/ns/net") for pid in
                             ("self", cluster.pid(0), cluster.pid(1))]}))
        """)
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    found = json.loads(outcome.stdout)
    self.assertEqual(found["right"], [True, True])
    for task, address in enumerate(found["cluster"]):
      self.assertStartsWith(address, f"198.18.0.{task + 1}:")
    self.assertLen(set(found["namespaces"]), 3)
    self.assertContainsSubset(["lo", "switch0", "cable0-0", "cable0-1"],
                              found["interfaces"])
    self.assertNotIn("eth0", found["interfaces"])
    for rates, num_bytes in found["sent"] + found["received"]:
      self.assertEqual(rates, ["400Mbit", "400Mbit"])
      # Each worker's half of 4 MB goes to the other, and its sum comes back.
      self.assertGreaterEqual(num_bytes, 4_000_000)
    self.assert_nothing_is_left(found["namespaces"])

  def test_the_rate_changes_and_the_workers_run_on(self):
    outcome = self.finished(self.command("""\
        import json, re, subprocess
        import tf_cdops
        from tf_cdops.cluster import cables

        def rate(interface):
          show = [cables._path("tc"), "class", "show", "dev", interface]
          said = subprocess.run(show, capture_output=True, text=True,
                                timeout=30, check=True).stdout
          return re.findall(r" (?:rate|ceil) (\\S+)", said)

        def state(cluster):
          return [cluster.bandwidth, cluster.link.name,
                  cluster.link.bytes_per_second,
                  [rate(f"cable0-{i}") for i in range(2)],
                  [cluster._cables.run_on_host(i, lambda: rate("eth0"))
                   for i in range(2)],
                  [cluster.pid(i) for i in range(2)]]

        cluster = tf_cdops.LocalCluster(2, bandwidth="1gbit")
        cluster.set_bandwidth("100mbit")
        with cluster:
          before = state(cluster)
          cluster.set_bandwidth("25 MB/s")
          try:
            cluster.set_bandwidth("fast")
          except ValueError as error:
            said = str(error)
          print(json.dumps([before, state(cluster), said]))
        """))
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    before, after, said = json.loads(outcome.stdout)
    slow, quick = [["100Mbit"] * 2] * 2, [["200Mbit"] * 2] * 2
    # The link carries headers, too.
    self.assertEqual(before[:-1], ["100mbit", "100mbit",
                                   12.5e6 * 1448 / 1514, slow, slow])
    self.assertEqual(after[:-1], ["25 MB/s", "25 MB/s", 25e6 * 1448 / 1514,
                                  quick, quick])
    self.assertEqual(before[-1], after[-1])
    self.assertRegex(said, r"^`bandwidth` \('fast'\) must be a positive")

  _SEVERAL = """\
      import json, os, socket
      import tf_cdops
      def names():
        return sorted(name for _, name in socket.if_nameindex()
                      if name.startswith(("switch", "cable")))
      def network(pid):
        return os.readlink(f"/proc/{pid}/ns/net")
      descriptors = os.listdir("/proc/self/fd")
      with tf_cdops.LocalCluster(2, bandwidth="1gbit") as one:
        with tf_cdops.LocalCluster(1, bandwidth="10 MB/s") as other:
          both = names()
          addresses = one.as_dict()["worker"] + other.as_dict()["worker"]
          networks = [network(c.pid(i)) for c, i in
                      ((one, 0), (one, 1), (other, 0))]
          one.restart(1)
          again = [network(one.pid(1)), one.as_dict()["worker"][1]]
        fewer = names()
      try:
        with tf_cdops.LocalCluster(1, bandwidth="1gbit"):
          raise KeyError("x")
      except KeyError:
        pass
      print(json.dumps([both, fewer, names(), addresses, networks, again,
                        len(os.listdir("/proc/self/fd")) - len(descriptors),
                        os.getuid()]))
      """

  def _check_several(self, outcome, user):
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    both, fewer, none, addresses, networks, again, opened, ran_as = json.loads(
        outcome.stdout)
    self.assertEqual(fewer, ["cable0-0", "cable0-1", "switch0"])
    self.assertEqual(both, sorted([*fewer, "cable1-0", "switch1"]))
    self.assertEmpty(none)
    self.assertEqual([a.split(":")[0] for a in addresses],
                     ["198.18.0.1", "198.18.0.2", "198.18.1.1"])
    self.assertLen(set(networks), 3)
    self.assertEqual(again, [networks[1], addresses[1]])
    self.assertEqual(opened, 0)
    self.assertEqual(ran_as, user)
    self.assert_nothing_is_left(networks)

  def test_several_clusters_restarts_and_exceptions(self):
    self._check_several(self.finished(self.command(self._SEVERAL)),
                        os.getuid())

  def test_as_an_ordinary_user(self):
    if os.getuid() != 0:
      self.skipTest("all of these tests are, here")
    for folder in (self.folder, *self.folder.parents):
      if not folder.stat().st_mode & 0o001:
        self.skipTest(f"others can't enter {folder}")
    try:
      outcome = self.finished(self.command(self._SEVERAL), user=_NOBODY,
                              group=_NOBODY, extra_groups=[])
    except PermissionError as error:
      self.skipTest(f"others can't run this Python: {error}")
    if "allows none" in outcome.stderr:
      self.skipTest(outcome.stderr)
    self._check_several(outcome, _NOBODY)


class LaunchTest(_TestCase):

  _WAITS = """\
      import json, os, signal, sys
      import tf_cdops
      with tf_cdops.LocalCluster(2, bandwidth="1gbit") as cluster:
        pids = [os.getpid(), cluster.pid(0), cluster.pid(1)]
        print(json.dumps([pids, [os.readlink(f"/proc/{pid}/ns/net")
                                 for pid in pids]]), flush=True)
        try:
          signal.pause()
        except KeyboardInterrupt:
          sys.exit(5)
      """

  # By whom the signal is sent to, which, and what `launch` then returns.
  @parameterized.parameters(
      ("client", signal.SIGKILL, 137), ("launch", signal.SIGKILL, -9),
      ("launch", signal.SIGTERM, 143), ("launch", signal.SIGINT, 5),
      ("both", signal.SIGINT, 5))
  def test_nothing_is_left(self, whom, number, code):
    with self.launched(self._WAITS) as process:
      line = process.stdout.readline()
      self.assertTrue(line, "no line" if process.poll() is None
                      else process.stderr.read())
      pids, networks = json.loads(line)
      self.assertLen(set(networks), 3)
      self.assertNotEmpty(users_of(set(networks)))
      if whom == "both":  # As a terminal does for Ctrl-C.
        os.killpg(process.pid, number)
      else:
        os.kill(pids[0] if whom == "client" else process.pid, number)
      self.assertEqual(process.wait(_BOUND), code)
      self.assert_nothing_is_left(networks, pids)

  def test_the_program_learns_of_the_workers(self):
    script = """\
        import json, os, subprocess, sys
        from tf_cdops.cluster import isolation
        from tf_cdops.cluster import probing
        from tf_cdops.cluster import addresses
        config = json.loads(os.environ["TF_CONFIG"])
        workers = addresses.resolve(config["cluster"]).workers
        probing.wait(workers, 30)
        print(json.dumps([sys.argv[1:], config, len(workers),
                          isolation.in_private_network()]))
        sys.exit(7)
        """
    command = self.command(script, "--workers=3", "--bandwidth=100mbit")
    args = ["--workers=9", "-x", "--v=1", "--", "--help", "y z"]
    outcome = self.finished([*command, *args])
    self.assertEqual((outcome.returncode, outcome.stderr), (7, ""))
    given, config, workers, private = json.loads(outcome.stdout)
    self.assertEqual((given, workers, private), (args, 3, True))
    self.assertEqual(config["task"], {"type": "client", "index": 0})
    self.assertEqual([a.split(":")[0] for a in config["cluster"]["worker"]],
                     ["198.18.0.1", "198.18.0.2", "198.18.0.3"])

  def test_runs_a_module(self):
    outcome = self.finished([sys.executable, "-m", "tf_cdops", "launch",
                             "--client", "-m", "json.tool", "--help"])
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertIn("JSON", outcome.stdout)


class NoCablesTest(parameterized.TestCase):
  """What is said, at once, where there are none to be had."""

  def test_too_late(self):
    cluster = tf_cdops.LocalCluster(1, bandwidth="1gbit")
    if shutil.which("tc", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
      self.skipTest("iproute2 isn't installed")
    with self.assertRaisesRegex(
        errors.ClusterError, "^`bandwidth` needs a network namespace, and it "
        r"is too late .*`python -m tf_cdops launch --client program\.py`\.$"):
      cluster.start()
    cluster.stop()

  def test_without_linux(self):
    with (mock.patch.object(sys, "platform", "darwin"),
          self.assertRaisesRegex(
              errors.ClusterError, "^`bandwidth` needs Linux's .* this is "
              "darwin; leave it out, or")):
      tf_cdops.LocalCluster(1, bandwidth="1gbit").start()

  def test_without_iproute2(self):
    with (mock.patch.object(cables, "_FOLDERS", ()),
          mock.patch.dict(os.environ, PATH="/no/such/folder"),
          self.assertRaisesRegex(
              errors.ClusterError, "^`bandwidth` needs the program `ip`, and "
              "there is none; install iproute2")):
      tf_cdops.LocalCluster(1, bandwidth="1gbit").start()

  @parameterized.parameters("fast", "100mbps", "0mbit", 500)
  def test_no_rate(self, bandwidth):
    with self.assertRaisesRegex(errors.InputError, r"^`bandwidth` \(.*\) must"):
      tf_cdops.LocalCluster(1, bandwidth=bandwidth)

  def test_no_cables_to_change(self):
    with self.assertRaisesRegex(
        errors.InputError, r"^`bandwidth` \('1gbit'\) must be for cables, and "
        "this LocalCluster has none; make it with a bandwidth: "
        r"LocalCluster\(bandwidth='1gbit'\)\.$"):
      tf_cdops.LocalCluster(1).set_bandwidth("1gbit")

  def test_where_the_system_allows_no_namespace(self):
    if cable_support.why_not() or shutil.which("unshare") is None:
      self.skipTest(cable_support.why_not() or "this system has no unshare")
    outcome = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c",
         'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"', "sh",
         sys.executable, "-m", "tf_cdops", "demo", "--workers=2",
         "--bandwidth=1gbit"], env=environment(), capture_output=True,
        text=True, timeout=_BOUND, check=False)
    if "tf_cdops" not in outcome.stderr:
      self.skipTest("this system has no user namespaces")
    self.assertEqual((outcome.returncode, outcome.stdout), (1, ""))
    self.assertRegex(
        outcome.stderr, r"^tf_cdops demo: `bandwidth` needs a network "
        r"namespace, and this system allows none; run it as root .*\n$")

  def test_a_kernel_without_htb(self):
    if cable_support.why_not():
      self.skipTest(cable_support.why_not())
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / "tc").write_text("#!/bin/sh\necho no such qdisc >&2\nexit 2\n")
    (folder / "tc").chmod(0o755)
    outcome = python_process.run_script(f"""\
        import os, socket
        from tf_cdops.cluster import cables
        os.environ["PATH"] = {str(folder)!r} + ":" + os.environ["PATH"]
        cables.enter_network(shaped=True)
        try:
          cables.Cables(2, 1e6)
        except Exception as error:
          print(type(error).__name__, error)
        print([name for _, name in socket.if_nameindex()
               if name.startswith(("switch", "cable"))])
        """)
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertRegex(
        outcome.stdout, r"^ClusterError no cables: `tc` refused one of: qdisc "
        r"add dev eth0 .*It said: no such qdisc The kernel must .*\n\[\]\n$")


if __name__ == "__main__":
  absltest.main()
