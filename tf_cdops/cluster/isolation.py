"""Keeps a local cluster out of other hosts' reach, where the OS allows it."""

import ctypes
import os
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP_AND_RUNNING = 0x1 | 0x40
# What lets programs that are started in here lay cables.
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
_CAPABILITY_VERSION_3 = 0x20080522
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
# Which network was entered, for this process and all that it starts.
_ENTERED = "TF_CDOPS_PRIVATE_NETWORK"
_OWN_NETWORK = "/proc/self/ns/net"


def enter_private_network() -> bool:
  """Moves this process, and all it starts, into a network of its own.

  TensorFlow's servers listen on all interfaces; in here there is loopback and
  nothing else. For command-line tools, which need no other network: call it
  before anything else, since it can't be undone and threads are in its way.

  Returns:
    Whether it could be done, or had been: on Linux, as root or where users may
    have namespaces. If not, nothing has changed.
  """
  if in_private_network():
    return True
  if sys.platform != "linux" or not _succeeds_in_a_child():
    return False
  if not _enter():
    return False
  os.environ[_ENTERED] = os.readlink(_OWN_NETWORK)
  return True


def in_private_network() -> bool:
  """Whether this process, or one that started it, has entered its network."""
  entered = os.environ.get(_ENTERED)
  return entered is not None and entered == os.readlink(_OWN_NETWORK)


def _succeeds_in_a_child() -> bool:
  """Tries it where a failure half-way does no harm."""
  child = os.fork()
  if child == 0:
    code = 1
    try:
      code = 0 if _enter() else 1
    finally:
      os._exit(code)
  return os.waitpid(child, 0)[1] == 0


def _enter() -> bool:
  import fcntl  # There is none on Windows.
  user, group = os.geteuid(), os.getegid()
  libc = ctypes.CDLL(None)
  # A container's root may be root of a user namespace only.
  if user != 0 or libc.unshare(CLONE_NEWNET) != 0:
    if libc.unshare(_CLONE_NEWUSER | CLONE_NEWNET) != 0:
      return False
    try:
      for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                         ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
          file.write(text)
    except OSError:
      return False
    if not _pass_capabilities_on(libc):
      return False
  try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
      fcntl.ioctl(any_socket, _SIOCSIFFLAGS,
                  struct.pack("16sH22x", b"lo", _IFF_UP_AND_RUNNING))
  except OSError:
    return False
  return True


def _pass_capabilities_on(libc: ctypes.CDLL) -> bool:
  """Has started programs keep what the user may do in the new namespaces."""
  header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
  sets = (ctypes.c_uint32 * 6)()  # Effective, permitted, inheritable; twice.
  if libc.capget(header, sets) != 0:
    return False
  sets[2] |= 1 << _CAP_NET_ADMIN | 1 << _CAP_SYS_ADMIN
  return libc.capset(header, sets) == 0 and all(
      libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, each, 0, 0) == 0
      for each in (_CAP_NET_ADMIN, _CAP_SYS_ADMIN))
