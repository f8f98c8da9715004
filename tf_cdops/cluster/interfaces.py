"""Whether other hosts could reach what listens on all interfaces here."""

import socket
import struct
import sys

_SIOCGIFFLAGS = 0x8913
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
WARNING = (
    "TensorFlow's servers have no authentication and listen on all interfaces, "
    "whatever address is given: anyone who can reach the port can run code "
    "here. Keep it behind a firewall.")


def reachable_from_outside() -> bool:
  """Whether an interface other than loopback is up; True where unknown."""
  if sys.platform != "linux":
    return True
  import fcntl  # There is none on Windows.
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    for _, name in socket.if_nameindex():
      request = struct.pack("16sH22x", name.encode(), 0)
      reply = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
      flags = struct.unpack("16sH22x", reply)[1]
      if flags & _IFF_UP and not flags & _IFF_LOOPBACK:
        return True
  return False
