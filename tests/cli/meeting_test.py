"""Tests of `doctor --task`: whether the workers of a cluster can meet."""

import contextlib
import io
import json
import os
import socket
import threading
from collections.abc import Iterator
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.base import errors
from tf_cdops.cli import main
from tf_cdops.cli import meeting
from tf_cdops.cluster import addresses
from tf_cdops.cluster import ports


def doctor(*args: str, tf_config: str = "") -> tuple[int, str, str]:
  """Runs the command; returns exit code, output and errors."""
  out, err = io.StringIO(), io.StringIO()
  with (mock.patch.dict(os.environ, TF_CONFIG=tf_config),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)):
    return main.main(["doctor", *args]), out.getvalue(), err.getvalue()


@contextlib.contextmanager
def listening(reply: bytes) -> Iterator[str]:
  """Answers all connections so; yields its address."""
  with socket.create_server(("127.0.0.1", 0)) as server:
    def serve() -> None:
      with contextlib.suppress(OSError):
        while True:
          connection, _ = server.accept()
          with connection, contextlib.suppress(ConnectionError):
            connection.sendall(reply)
            connection.recv(100)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
      yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
      with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
      thread.join(60)


class DoctorTaskTest(parameterized.TestCase):

  def test_all_can_start(self):
    own, other = (f"127.0.0.1:{port}" for port in ports.find_free(2))
    with listening(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])) as started:
      code, out, err = doctor(f"--cluster={other},{own},{started}", "--task=1")
    self.assertEqual((code, err), (0, ""))
    cells = {row[0]: row[1:] for row in (
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in out.splitlines() if line.startswith("│"))}
    self.assertEqual(cells, {
        "worker 0": [other, "host answers", "its program doesn't listen yet"],
        "worker 1": [own, "free",
                     "this machine's: its program can listen there"],
        "worker 2": [started, "runs", "its program listens already"]})
    self.assertEndsWith(out, "As seen from here, the programs can start.\n")

  def test_faults(self):
    with listening(b"SSH-2.0-x\r\n") as own, listening(b"SSH-2.0-x") as other:
      config = {"cluster": {"chief": [own], "worker": [other, "no.invalid:1"]},
                "task": {"type": "chief", "index": 0}}
      code, out, err = doctor("--task", "--json", tf_config=json.dumps(config))
    self.assertEqual((code, err), (1, ""))
    found = json.loads(out)
    self.assertFalse(found["ok"])
    self.assertEqual([(task["task"], task["outcome"])
                      for task in found["tasks"]],
                     [("chief 0", "IN USE"), ("worker 0", "OCCUPIED"),
                      ("worker 1", "UNKNOWN")])
    self.assertRegex(found["tasks"][0]["detail"], (
        f"^port {own.split(':')[1]} of this machine: Address already in use; "
        "end what uses it"))
    self.assertRegex(found["tasks"][1]["detail"],
                     "^something listens, and is no TensorFlow server; end it")
    self.assertRegex(found["tasks"][2]["detail"],
                     r"^no address is known for no\.invalid \(.*\); mend")

  # What connecting raises, and the outcome.
  @parameterized.parameters(
      (TimeoutError(), "SILENT", "no answer within 5 s; is the host up, and "
       "does a firewall let port 2222 through?"),
      (OSError(113, "No route to host"), "UNREACHABLE",
       "No route to host; mend the address or the route to it"))
  def test_hosts_that_do_not_answer(self, error, outcome, detail):
    task = addresses.Task("worker", 0, "10.0.0.5:2222")
    with mock.patch.object(socket, "create_connection", side_effect=error):
      finding, = meeting.look(addresses.Cluster((task,)))
    self.assertEqual((finding.outcome, finding.detail), (outcome, detail))
    self.assertFalse(finding.ok)

  def test_an_address_of_another_machine(self):
    port, = ports.find_free(1)
    # Of documentation's addresses (RFC 5737), which no machine has.
    task = addresses.Task("worker", 0, f"192.0.2.1:{port}")
    finding, = meeting.look(addresses.Cluster((task,), own=task))
    self.assertEqual(finding.outcome, "free, but")
    self.assertRegex(finding.detail, "^192.0.2.1 isn't an address of this "
                     "machine: is --task right?")
    self.assertTrue(finding.ok)

  def test_the_cluster_of_tf_config(self):
    own, other = (f"127.0.0.1:{port}" for port in ports.find_free(2))
    config = json.dumps({"cluster": {"worker": [other, own]}})
    for flags in (["--task=1"], ["--cluster=TF_CONFIG", "--task=1"]):
      code, out, _ = doctor(*flags, "--json", tf_config=config)
      self.assertEqual(code, 0)
      self.assertEqual([task["outcome"] for task in json.loads(out)["tasks"]],
                       ["host answers", "free"])

  @parameterized.parameters(
      (["--task=0"], r"`--task` \(0\) must come with --cluster, .* or with "
       r"TF_CONFIG, which isn't set; give one\."),
      (["--task=x", "--cluster=a:1"], r"`--task` \(x\) must be the number of "),
      (["--task=1", "--cluster=a:1"], r"`--task` \(1\) must be one of the "
       r"cluster's tasks: /job:worker/task:0 at a:1\."),
      (["--task=0", "--cluster=a"], r"`address` \('a'\) must be host:port"),
      (["--task=0", "--workers=2"], r"`--task` \(0\) must come without "
       "--workers and --out"))
  def test_bad_input(self, args, regex):
    code, out, err = doctor(*args)
    self.assertEqual((code, out), (2, ""))
    self.assertRegex(err, f"^tf_cdops doctor: {regex}")

  @parameterized.parameters("{}", '{"cluster": {}}')
  def test_a_tf_config_without_a_cluster(self, text):
    code, out, err = doctor("--task=TF_CONFIG", tf_config=text)
    self.assertEqual((code, out), (2, ""))
    self.assertRegex(err, r"^tf_cdops doctor: `TF_CONFIG` \('\{.*\}'\) must "
                     "have a cluster, such as")

  def test_no_number_needs_a_task_in_tf_config(self):
    with self.assertRaisesRegex(
        errors.InputError, "^the task of `TF_CONFIG` .* must be one of the"):
      meeting._cluster(None, meeting.TF_CONFIG, {
          "TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'})


if __name__ == "__main__":
  absltest.main()
