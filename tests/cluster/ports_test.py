"""Tests of which ports are free."""

import socket
import threading

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.base import errors
from tf_cdops.cluster import ports


class PortsTest(parameterized.TestCase):

  def test_free_ones_differ(self):
    found = ports.find_free(20)
    self.assertLen(set(found), 20)
    for port in found:
      self.assertIsNone(ports.why_not_free(port))

  # TensorFlow listens on all interfaces: any listener is in its way.
  @parameterized.parameters("127.0.0.1", "0.0.0.0", "::", "::1")
  def test_one_that_is_taken(self, host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
      taken = socket.create_server((host, 0), family=family)
    except OSError as error:
      self.skipTest(f"no {host} here: {error}")
    with taken:
      port = taken.getsockname()[1]
      self.assertEqual(ports.why_not_free(port), "Address already in use")
      with self.assertRaisesRegex(
          errors.ClusterError, rf"^port {port} of this machine must be free, "
          "and isn't: Address already in use. End what uses it"):
        ports.wait_until_free(port, 0.0)
    ports.wait_until_free(port, 0.0)

  def test_one_that_gets_free(self):
    with socket.create_server(("127.0.0.1", 0)) as taken:
      later = threading.Timer(0.3, taken.close)
      later.start()
      self.addCleanup(later.cancel)
      ports.wait_until_free(taken.getsockname()[1], 60.0)


if __name__ == "__main__":
  absltest.main()
