"""Ports of this machine: which are free, and whether a given one is."""

import errno
import os
import socket
import time

from tf_cdops.base import errors

_PAUSE = 0.1


def find_free(count: int) -> list[int]:
  """Returns ports that were free a moment ago, each another."""
  sockets = [socket.socket() for _ in range(count)]
  try:
    for each in sockets:
      each.bind(("127.0.0.1", 0))
    return [each.getsockname()[1] for each in sockets]
  finally:
    for each in sockets:
      each.close()


def why_not_free(port: int) -> str | None:
  """Returns why no server can listen on a port; None if one can.

  On all interfaces, as TensorFlow's servers do.
  """
  families = [socket.AF_INET]
  if socket.has_dualstack_ipv6():
    families.insert(0, socket.AF_INET6)
  for family in families:
    try:
      socket.create_server(
          ("", port), family=family,
          dualstack_ipv6=family == socket.AF_INET6).close()
    except OSError as error:
      if family == socket.AF_INET6 and error.errno != errno.EADDRINUSE:
        continue  # This network has no IPv6.
      return os.strerror(error.errno) if error.errno else str(error)
    return None
  return None


def wait_until_free(port: int, timeout: float) -> None:
  """Waits for a port that its last user may still hold.

  Args:
    port: which.
    timeout: seconds; 0 to look once.

  Raises:
    ClusterError: it is in use, or may not be had.
  """
  deadline = time.monotonic() + timeout
  while (why := why_not_free(port)) is not None:
    if time.monotonic() >= deadline:
      raise errors.ClusterError(
          f"port {port} of this machine must be free, and isn't: {why}. End "
          "what uses it, an earlier run perhaps, or take another port, on all "
          "machines.")
    time.sleep(_PAUSE)
