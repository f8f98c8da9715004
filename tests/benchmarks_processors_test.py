"""Tests of hosts' shares of the processors."""

import pathlib
import subprocess
import sys

from absl.testing import absltest
from benchmarks import processors

from tf_cdops.base import errors


class SharesTest(absltest.TestCase):

  def test_processes_are_in_groups_of_their_own(self):
    try:
      shares = self.enter_context(processors.Shares(2))
    except errors.ClusterError as error:
      self.skipTest(f"this system lets nobody make control groups: {error}")
    found = []
    for host in range(2):
      with subprocess.Popen([sys.executable, "-c", "input()"],
                            stdin=subprocess.PIPE) as process:
        shares.give(host, process.pid)
        found.append(pathlib.Path(f"/proc/{process.pid}/cgroup").read_text())
    self.assertIn("tf_cdops-", found[0])
    self.assertNotEqual(*found)

  def test_where_there_are_none_is_said_and_nothing_left(self):
    root = pathlib.Path(self.create_tempdir().full_path)
    with self.assertRaisesRegex(
        errors.ClusterError, "no shares of the processors: .*; run this as"
    ), processors.Shares(2, root):
      pass
    self.assertEmpty(list(root.iterdir()))


if __name__ == "__main__":
  absltest.main()
