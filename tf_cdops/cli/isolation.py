"""Keeps a local cluster out of other hosts' reach, where the OS allows it."""

import ctypes
import os
import socket
import struct
import sys

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP_AND_RUNNING = 0x1 | 0x40


def enter_private_network() -> bool:
  """Moves this process, and all it starts, into a network of its own.

  TensorFlow's servers listen on all interfaces; in here there is loopback and
  nothing else. For command-line tools, which need no other network: call it
  before anything else, since it can't be undone and threads are in its way.

  Returns:
    Whether it could be done: on Linux, as root or where users may have
    namespaces.
  """
  if sys.platform != "linux":
    return False
  import fcntl  # There is none on Windows.
  user, group = os.geteuid(), os.getegid()
  flags = _CLONE_NEWNET if user == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
  if ctypes.CDLL(None).unshare(flags) != 0:
    return False
  try:
    if user != 0:
      for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                         ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
          file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
      fcntl.ioctl(any_socket, _SIOCSIFFLAGS,
                  struct.pack("16sH22x", b"lo", _IFF_UP_AND_RUNNING))
  except OSError:
    return False
  return True
