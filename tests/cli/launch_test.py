"""Tests of `launch` with one program a worker; no program has TensorFlow."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

from absl.testing import absltest
from absl.testing import parameterized
from tests import cable_support
from tests import python_process
from tests import stand_in_worker

from tf_cdops.cluster import ports

_BOUND = 120.0  # Seconds; what is waited for takes a few on a busy machine.
# What scripts may use: `index`, `restart`, and files to tell others by.
_PRELUDE = """\
import json, os, pathlib, signal, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
restart = int(os.environ["TF_CDOPS_RESTART"])
folder = pathlib.Path(__file__).parent
def tell(name, text=""):
  (folder / ".new").with_suffix(f".{os.getpid()}").write_text(str(text))
  (folder / ".new").with_suffix(f".{os.getpid()}").rename(folder / name)
def wait_for(*names):
  while not all((folder / name).exists() for name in names):
    time.sleep(0.01)
tell(f"pid{index}", os.getpid())
"""


class _TestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)

  def command(self, script: str, *flags: str) -> list[str]:
    path = self.folder / "script.py"
    path.write_text(_PRELUDE + textwrap.dedent(script))
    return [sys.executable, "-m", "tf_cdops", "launch", *flags, str(path)]

  def environment(self, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    return kept | {"PYTHONPATH": os.pathsep.join(
        [str(python_process.ROOT), *filter(None, sys.path)])} | more

  def launch(self, script: str, *flags: str, args: tuple[str, ...] = (),
             **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs it to its end; the launcher's own warning is left out."""
    done = subprocess.run(
        [*self.command(script, *flags), *args], capture_output=True, text=True,
        env=self.environment(**variables), timeout=_BOUND, check=False)
    done.stderr = re.sub("tf_cdops launch: warning: TensorFlow's servers.*\n",
                         "", done.stderr)
    return done

  @contextlib.contextmanager
  def launched(self, script: str, *flags: str, stderr: int = subprocess.PIPE
               ) -> Iterator["subprocess.Popen[str]"]:
    """Runs it meanwhile; it ends with the block at the latest."""
    with subprocess.Popen(
        self.command(script, *flags), env=self.environment(), text=True,
        stdout=subprocess.PIPE, stderr=stderr,
        start_new_session=True) as process:
      # Then whoever waits for a line has waited long enough.
      limit = threading.Timer(_BOUND, process.kill)
      limit.start()
      try:
        yield process
      finally:
        limit.cancel()
        process.kill()

  def wait_for(self, *names: str) -> list[str]:
    """Waits for what scripts tell; returns it."""
    self.assert_comes(
        lambda: all((self.folder / name).exists() for name in names), names)
    return [(self.folder / name).read_text() for name in names]

  def assert_all_gone(self, *names: str) -> None:
    for pid in map(int, self.wait_for(*names)):
      self.assert_comes(lambda pid=pid: not stand_in_worker.alive(pid),
                        f"{pid} runs")

  def assert_comes(self, condition: Callable[[], bool], else_: object) -> None:
    # Several programs start at once here, which takes longer than one.
    self.assertTrue(any(stand_in_worker.wait_until(condition)
                        for _ in range(4)), else_)


class ProgramsTest(_TestCase):

  def test_each_learns_who_it_is(self):
    done = self.launch("""\
        print(json.dumps([config, sys.argv[1:], restart,
                          os.environ.get("TF_CDOPS_DEVICES"),
                          os.environ.get("CUDA_VISIBLE_DEVICES")]))
        print("to stderr", file=sys.stderr)
        """, "--workers=3", "--devices=2", args=("--workers=9", "-x", "y z"),
        TF_CONFIG='{"cluster": {"worker": ["elsewhere:1"]}}')
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertCountEqual(done.stderr.splitlines(), [
        f"[worker {i}] to stderr" for i in range(3)])
    said = {}
    for line in done.stdout.splitlines():
      name, _, text = line.partition("] ")
      said[name] = json.loads(text)
    self.assertCountEqual(said, ["[worker 0", "[worker 1", "[worker 2"])
    addresses = said["[worker 0"][0]["cluster"]["worker"]
    self.assertLen(set(addresses), 3)
    for index in range(3):
      self.assertRegex(addresses[index], r"^127\.0\.0\.1:\d+$")
      self.assertEqual(said[f"[worker {index}"], [
          {"cluster": {"worker": addresses},
           "task": {"type": "worker", "index": index}},
          ["--workers=9", "-x", "y z"], 0, "2", "-1"])

  def test_a_module(self):
    done = subprocess.run(
        [sys.executable, "-m", "tf_cdops", "launch", "--workers=2", "-m",
         "json.tool", "--help"], capture_output=True, text=True,
        env=self.environment(), timeout=_BOUND, check=False)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertContainsSubset(["[worker 0] options:", "[worker 1] options:"],
                              done.stdout.splitlines())

  def test_a_module_that_is_not_there(self):
    done = subprocess.run(
        [sys.executable, "-m", "tf_cdops", "launch", "--workers=2", "-m",
         "no_such_module"], capture_output=True, text=True,
        env=self.environment(), timeout=_BOUND, check=False)
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr, r"\[worker 0\] .*No module named no_such_")
    self.assertIn("failed with exit code 1", done.stderr)

  def test_hosts_with_cables(self):
    if cable_support.why_not():
      self.skipTest(f"no cables: {cable_support.why_not()}")
    interfaces = socket.if_nameindex()
    done = self.launch("""\
        import socket
        workers = config["cluster"]["worker"]
        host, port = workers[index].split(":")
        with socket.create_server((host, int(port))) as listening:
          tell(f"listens{index}{restart}")
          wait_for(f"listens0{restart}", f"listens1{restart}")
          host, port = workers[1 - index].split(":")
          socket.create_connection((host, int(port)), 60).close()
          listening.accept()
        print(json.dumps([os.readlink("/proc/self/ns/net"), workers]))
        sys.exit(index if restart == 0 else 0)
        """, "--workers=2", "--bandwidth=100mbit", "--max_restarts=1")
    self.assertEqual(done.returncode, 0, done.stderr)
    said = [json.loads(line.partition("] ")[2])
            for line in done.stdout.splitlines()]
    self.assertLen(said, 4)
    self.assertLen({network for network, _ in said}, 2)
    for _, workers in said:
      self.assertEqual([each.split(":")[0] for each in workers],
                       ["198.18.0.1", "198.18.0.2"])
    self.assertEqual(socket.if_nameindex(), interfaces)


class OutputTest(_TestCase):

  def test_lines_are_whole(self):
    done = self.launch("""\
        for i in range(500):
          for piece in (f"{i} " + str(index) * 50, str(index) * 50 + "\\n"):
            os.write(1 + i % 2, piece.encode())
        sys.stdout.write("no newline")
        """, "--workers=4")
    self.assertEqual(done.returncode, 0)
    for text, odd in ((done.stdout, 0), (done.stderr, 1)):
      for index in range(4):
        mine = [line for line in text.splitlines()
                if line.startswith(f"[worker {index}] ")]
        expected = [f"[worker {index}] {i} " + str(index) * 100
                    for i in range(odd, 500, 2)]
        if not odd:
          expected.append(f"[worker {index}] no newline")
        self.assertEqual(mine, expected)

  def test_both_to_one_pipe(self):
    done = subprocess.run(self.command("""\
        for i in range(2000):
          os.write(1 + i % 2, str(index).encode() * 9000 + b"\\n")
        """, "--workers=2"), env=self.environment(), timeout=_BOUND,
        check=False, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    self.assertEqual(done.returncode, 0)
    lines = done.stdout.splitlines()
    for index in range(2):
      self.assertEqual(
          lines.count(f"[worker {index}] " + str(index) * 9000), 2000)

  def test_what_has_no_newline_does_not_wait_for_one(self):
    with self.launched("""\
        sys.stdout.write("1/9\\r2/9\\r")
        wait_for("seen")
        sys.stdout.write("\\n3/9\\n")
        """, "--workers=1") as process:
      self.assertEqual(process.stdout.readline(), "[worker 0] 2/9\n")
      (self.folder / "seen").touch()
      self.assertEqual(process.stdout.readline(), "[worker 0] 3/9\n")
      self.assertEqual(process.wait(_BOUND), 0)

  @parameterized.parameters("x" * 99 + "\\n", "x")
  def test_100_megabytes(self, text):
    """As lines, and as one line; for a reader that is slow to begin."""
    with self.launched(f"""\
        piece = b"{text}" * 10_000
        for _ in range(100_000_000 // len(piece)):
          os.write(1, piece)
        tell("written")
        signal.pause()
        """, "--workers=1", stderr=subprocess.DEVNULL) as process:
      self.wait_for("pid0")
      count, name = 0, len("[worker 0] ")
      while count < 99_900_000:  # The last line may have no end yet.
        line = process.stdout.readline()
        self.assertStartsWith(line, "[worker 0] x")
        self.assertLess(len(line), 100_000)
        count += len(line) - name - (0 if len(text) == 1 else -1) - 1
      self.wait_for("written")
      children = pathlib.Path(
          f"/proc/{process.pid}/task/{process.pid}/children").read_text()
      for pid in (process.pid, *map(int, children.split())):
        peak = re.search(r"VmHWM:\s+(\d+) kB",
                         pathlib.Path(f"/proc/{pid}/status").read_text())
        self.assertLess(int(peak[1]), 80_000)

  def test_a_reader_that_goes(self):
    with self.launched("""\
        while True:
          print("x")
        """, "--workers=2") as process:
      self.wait_for("pid0", "pid1")
      process.stdout.readline()
      process.stdout.close()
      self.assertEqual(process.wait(_BOUND), 128 + signal.SIGPIPE)
      self.assertIn("nobody reads the output any more; ending all.",
                    process.stderr.read())
    self.assert_all_gone("pid0", "pid1")

  def test_colours_are_for_terminals(self):
    import pty
    ours, theirs = pty.openpty()
    try:
      process = subprocess.Popen(
          self.command("print('x')", "--workers=2"), env=self.environment(),
          stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
      self.assertEqual(process.wait(_BOUND), 0)
      said = os.read(ours, 1000).decode().splitlines()
    finally:
      os.close(ours)
      os.close(theirs)
    self.assertCountEqual(said, ["\x1b[36m[worker 0]\x1b[0m x",
                                 "\x1b[33m[worker 1]\x1b[0m x"])


class FailureTest(_TestCase):

  # What worker 1 does, the exit code, and what is said of it.
  @parameterized.parameters(
      ("sys.exit(7)", 7, "worker 1 failed with exit code 7; "),
      ("os.kill(os.getpid(), signal.SIGKILL)", 137,
       "worker 1 was killed by SIGKILL; "),
      ("raise ValueError('why')", 1, "worker 1 failed with exit code 1; "))
  def test_one_fails_and_all_end(self, action, code, message):
    done = self.launch(f"""\
        if index == 1:
          wait_for("pid0", "pid2")
          {action}
        signal.pause()
        """, "--workers=3")
    self.assertEqual(done.returncode, code)
    self.assertIn(f"tf_cdops launch: {message}ending worker 0 and worker 2.\n",
                  done.stderr)
    self.assert_all_gone("pid0", "pid1", "pid2")

  def test_who_was_killed_is_to_blame(self):
    done = self.launch("""\
        if index == 1:
          wait_for("pid0")
          os.kill(os.getpid(), signal.SIGKILL)
        wait_for("pid1")
        while True:  # As TensorFlow's own programs, when they lose one.
          try:
            pid = int((folder / "pid1").read_text())
            if ") Z" in pathlib.Path(f"/proc/{pid}/stat").read_text():
              sys.exit(1)
          except OSError:
            sys.exit(1)
        """, "--workers=2")
    self.assertEqual(done.returncode, 137)
    # The other's end is waited for, but not for long.
    self.assertRegex(done.stderr, "worker 1 was killed by SIGKILL; (then "
                     "worker 0 failed with exit code 1|ending worker 0)\\.\n")

  def test_who_is_stopped_is_named_and_killed(self):
    done = self.launch("""\
        if index == 0:
          os.kill(os.getpid(), signal.SIGSTOP)
        wait_for("pid0")
        pid = int((folder / "pid0").read_text())
        while ") T" not in pathlib.Path(f"/proc/{pid}/stat").read_text():
          time.sleep(0.01)
        sys.exit(1)
        """, "--workers=2")
    self.assertEqual(done.returncode, 1)
    self.assertIn(
        "worker 1 failed with exit code 1; worker 0 is stopped (SIGSTOP), "
        "which is the likely cause; ending worker 0.\n", done.stderr)
    self.assert_all_gone("pid0", "pid1")

  def test_who_is_stopped_is_named_before_any_fails(self):
    with self.launched("""\
        os.kill(os.getpid(), signal.SIGSTOP)
        """, "--workers=1") as process:
      for line in process.stderr:
        if "stopped" in line:
          break
      pid, = self.wait_for("pid0")
      self.assertEqual(line, "tf_cdops launch: worker 0 is stopped (SIGSTOP); "
                       f"`kill -CONT {pid}` lets it go on.\n")
      os.kill(int(pid), signal.SIGCONT)
      self.assertEqual(process.wait(_BOUND), 0)

  def test_one_that_ends_well_but_early(self):
    done = self.launch("""\
        if index != 1:
          signal.pause()
        """, "--workers=3", "--grace=1.5")
    self.assertEqual(done.returncode, 1)
    self.assertIn(
        "tf_cdops launch: worker 1 ended early, with exit code 0: 1.5 s later "
        "worker 0 and worker 2 still ran; ending them.", done.stderr)
    self.assert_all_gone("pid0", "pid1", "pid2")

  def test_the_others_may_take_a_while(self):
    with self.launched("""\
        if index == 0:
          wait_for("go")
          print("saved")
        """, "--workers=2") as process:
      for line in process.stderr:
        if "ended" in line:
          break
      self.assertEqual(
          line, "tf_cdops launch: worker 1 ended, with exit code 0; worker 0 "
          "must end within 600 s of that (--grace).\n")
      (self.folder / "go").touch()
      self.assertEqual(process.wait(_BOUND), 0)
      self.assertEqual(process.stdout.read(), "[worker 0] saved\n")


class NothingIsLeftTest(_TestCase):

  # Each worker has a child in its session, and one in a session of its own.
  _FAMILY = """\
      sleep = "import time; time.sleep(1000)"
      for i in range(2):
        child = subprocess.Popen([sys.executable, "-S", "-c", sleep],
                                 start_new_session=i == 1)
        tell(f"child{index}{i}", child.pid)
      tell(f"ready{index}")
"""
  _WAITS = _FAMILY + """\
      try:
        signal.pause()
      except KeyboardInterrupt:
        print("interrupted")
      """
  _STUBBORN = _FAMILY + """\
      for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
      tell(f"stubborn{index}")
      while True:
        signal.pause()
      """
  _ALL = ("pid0", "child00", "child01", "pid1", "child10", "child11")

  @parameterized.parameters(
      (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129),
      (signal.SIGKILL, -9))
  def test_a_signal_to_the_launcher(self, number, code):
    # Under nohup, tests and what they start would ignore it.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    self.addCleanup(signal.signal, signal.SIGHUP, before)
    with self.launched(self._WAITS, "--workers=2") as process:
      self.wait_for("ready0", "ready1")
      process.send_signal(number)
      self.assertEqual(process.wait(_BOUND), code)
      self.assert_all_gone(*self._ALL)
      if number == signal.SIGINT:
        self.assertCountEqual(
            process.stdout.read().splitlines(),
            ["[worker 0] interrupted", "[worker 1] interrupted"])
        self.assertIn("tf_cdops launch: interrupted; ending all.\n",
                      process.stderr.read())

  def test_the_launchers_child_is_killed(self):
    with self.launched(self._WAITS, "--workers=2") as process:
      self.wait_for("ready0", "ready1")
      pid, = pathlib.Path(
          f"/proc/{process.pid}/task/{process.pid}/children"
          ).read_text().split()
      os.kill(int(pid), signal.SIGKILL)
      self.assertEqual(process.wait(_BOUND), 137)
      self.assert_all_gone(*self._ALL)

  @parameterized.parameters(signal.SIGTERM, signal.SIGKILL)
  def test_programs_that_heed_no_signal(self, number):
    with self.launched(self._STUBBORN, "--workers=2") as process:
      self.wait_for("stubborn0", "stubborn1")
      process.send_signal(number)
      self.assertEqual(process.wait(_BOUND),
                       143 if number == signal.SIGTERM else -9)
      self.assert_all_gone(*self._ALL)

  def test_a_second_ctrl_c_is_quick(self):
    with self.launched(self._STUBBORN, "--workers=2") as process:
      self.wait_for("stubborn0", "stubborn1")
      process.send_signal(signal.SIGINT)
      for line in process.stderr:
        if "interrupted" in line:
          break
      process.send_signal(signal.SIGINT)
      self.assertEqual(process.wait(_BOUND), 130)
      self.assert_all_gone(*self._ALL)

  def test_children_of_programs_that_ended_well(self):
    done = self.launch(self._FAMILY, "--workers=2")
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assert_all_gone(*self._ALL)

  def test_with_cables(self):
    if cable_support.why_not():
      self.skipTest(f"no cables: {cable_support.why_not()}")
    interfaces = socket.if_nameindex()
    with self.launched(self._WAITS, "--workers=2",
                       "--bandwidth=1gbit") as process:
      self.wait_for("ready0", "ready1")
      process.kill()
      process.wait(_BOUND)
      self.assert_all_gone(*self._ALL)
    self.assertEqual(socket.if_nameindex(), interfaces)

  def test_what_is_ignored_from_the_start(self):
    """As `nohup` has it, and a shell's background jobs."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    self.addCleanup(signal.signal, signal.SIGHUP, before)
    with self.launched("wait_for('go')", "--workers=1") as process:
      self.wait_for("pid0")
      process.send_signal(signal.SIGHUP)
      (self.folder / "go").touch()
      self.assertEqual(process.wait(_BOUND), 0)


class RestartTest(_TestCase):

  _FAILS = """\
      print(f"run {restart} {config['cluster']['worker']}")
      if index == 1 and restart < 2:
        wait_for("pid0")
        sys.exit(9)
      if restart < 2:
        signal.pause()
      """

  def test_until_all_end_well(self):
    done = self.launch(self._FAILS, "--workers=2", "--max_restarts=3")
    self.assertEqual(done.returncode, 0, done.stderr)
    for restart in (1, 2):
      self.assertRegex(
          done.stderr, "worker 1 failed with exit code 9; ending worker 0.\n"
          rf"tf_cdops launch: starting again in {restart} s, with "
          rf"TF_CDOPS_RESTART={restart} \(of at most 3\)\.\n")
    clusters = set()
    for restart in range(3):
      said = re.findall(rf"run {restart} (.*)", done.stdout)
      self.assertLen(set(said), 1, done.stdout)
      clusters.update(said)
    self.assertLen(clusters, 3)  # Each time with other ports.

  def test_not_for_ever(self):
    done = self.launch(self._FAILS, "--workers=2", "--max_restarts=1")
    self.assertEqual(done.returncode, 9)
    self.assertEqual(done.stderr.count("starting again"), 1)

  def test_none_unless_asked_for(self):
    done = self.launch(self._FAILS, "--workers=2")
    self.assertEqual(done.returncode, 9)
    self.assertNotIn("starting again", done.stderr)

  def test_ctrl_c_while_it_waits(self):
    with self.launched("sys.exit(3)", "--workers=2",
                       "--max_restarts=30") as process:
      for line in process.stderr:
        if "starting again in 4 s" in line:
          break
      process.send_signal(signal.SIGINT)
      self.assertEqual(process.wait(_BOUND), 130)
      self.assertNotIn("TF_CDOPS_RESTART=4", process.stderr.read())


class OneOfSeveralMachinesTest(_TestCase):

  def test_cluster_and_task(self):
    port, = ports.find_free(1)
    done = self.launch("""\
        print(json.dumps(config))
        sys.exit(5 if restart == 0 else 0)
        """, f"--cluster=elsewhere:1,127.0.0.1:{port}", "--task=1",
        "--max_restarts=1")
    self.assertEqual(done.returncode, 0, done.stderr)
    name, _, text = done.stdout.splitlines()[0].partition(" {")
    self.assertEqual(name, "[worker 1]")
    self.assertEqual(json.loads("{" + text), {
        "cluster": {"worker": ["elsewhere:1", f"127.0.0.1:{port}"]},
        "task": {"type": "worker", "index": 1}})
    self.assertEqual(done.stdout.splitlines()[0], done.stdout.splitlines()[1])
    self.assertIn("worker 1 failed with exit code 5.\n", done.stderr)

  def test_tf_config_is_passed_on(self):
    port, = ports.find_free(1)
    config = json.dumps({
        "cluster": {"chief": [f"127.0.0.1:{port}"], "worker": ["other:1"]},
        "task": {"type": "chief", "index": 0}, "rpc_layer": "grpc"})
    done = self.launch("print(os.environ['TF_CONFIG'])", TF_CONFIG=config)
    self.assertEqual((done.returncode, done.stdout),
                     (0, f"[chief 0] {config}\n"), done.stderr)

  def test_a_port_in_use(self):
    with socket.create_server(("127.0.0.1", 0)) as taken:
      port = taken.getsockname()[1]
      done = self.launch("", f"--cluster=127.0.0.1:{port},elsewhere:1",
                         "--task=0", "--max_restarts=3")
    self.assertEqual((done.returncode, done.stdout), (1, ""))
    self.assertRegex(
        done.stderr, rf"^tf_cdops launch: port {port} of this machine must be "
        r"free, and isn't: Address already in use\. .*\n$")

  def test_tf_config_of_a_client(self):
    done = self.launch("", TF_CONFIG=json.dumps({
        "cluster": {"worker": ["a:1"]},
        "task": {"type": "client", "index": 0}}))
    self.assertEqual(done.returncode, 2)
    self.assertRegex(done.stderr, r"^tf_cdops launch: the task of `TF_CONFIG` "
                     r"\(.*\) must be one of the cluster's tasks: /job:worker/"
                     r"task:0 at a:1\.\n$")


if __name__ == "__main__":
  absltest.main()
