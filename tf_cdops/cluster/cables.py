"""A host for each worker: a network namespace with a cable of a given rate.

The switch is a bridge in this process's own network, which must be a private
one. Each cable is a veth pair from it to a worker's namespace, and both of its
ends are shaped by htb, so a worker sends and receives at no more than the rate.
This process is on the switch itself, with no limit.
"""

import functools
import ipaddress
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from tf_cdops.base import errors
from tf_cdops.cluster import isolation
from tf_cdops.cluster import namespaces

# Addresses for measuring networks, that no other network has (RFC 2544).
_ADDRESSES = ipaddress.IPv4Network("198.18.0.0/15")
_CLIENT = 254
_INTERFACE = "eth0"  # A worker's, in its namespace.
# ip and tc are often where only root looks.
_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin")
_SECONDS = 20.0  # For one call of ip or tc, which takes milliseconds.
# What htb lets pass at once, so that few timers have to fire.
_BURST_SECONDS = 0.0005
_LEAST_BURST = 16_384
_QUANTUM = 15_000  # There is one class, so it only has to be in htb's range.
# How TCP finds its rate: by the first of these that may be had, so that figures
# don't depend on the machine's own setting. BBR's probes, say, leave a cable
# idle for 200 ms now and then, and it is unfair to senders that share one.
_CONGESTION_CONTROLS = ("cubic", "reno")
_CONGESTION_CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"
_T = TypeVar("_T")


def check_programs() -> None:
  """Raises, with the remedy, where there can be no cables."""
  if sys.platform != "linux":
    raise errors.ClusterError(
        f"`bandwidth` needs Linux's network namespaces, and this is "
        f"{sys.platform}; leave it out, or use a Linux machine or container.")
  for program in ("ip", "tc"):
    _path(program)


def enter_network(shaped: bool) -> None:
  """Moves this process into a private network, before TensorFlow is loaded.

  Args:
    shaped: whether cables are wanted: then it raises if that isn't possible.
      Otherwise a LocalCluster warns where others can reach it.
  """
  if shaped:
    check_programs()
  if not isolation.enter_private_network() and shaped:
    raise errors.ClusterError(
        "`bandwidth` needs a network namespace, and this system allows none; "
        "run it as root (in a container, with --cap-add=SYS_ADMIN), or let "
        "users have namespaces: see the sysctls user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone and "
        "kernel.apparmor_restrict_unprivileged_userns.")


def check_network() -> None:
  """Raises if this process hasn't entered a private network."""
  check_programs()
  if not isolation.in_private_network():
    raise errors.ClusterError(
        "`bandwidth` needs a network namespace, and it is too late for this "
        "process to enter one: it may have threads, which would stay outside. "
        "Run the program in one from its start, with `python -m tf_cdops "
        "launch --client program.py`.")


class Cables:
  """As many namespaces on one switch; `hosts` are their addresses.

  They vanish with `remove`, or with the last process that uses them.
  """

  def __init__(self, count: int, bytes_per_second: float):
    """Lays the cables.

    Args:
      count: how many namespaces.
      bytes_per_second: what each may send, and receive, in a second.
    """
    check_network()
    number, network = _claim_switch()
    self._switch = f"switch{number}"
    self._links = [f"cable{number}-{i}" for i in range(count)]
    self.hosts = tuple(str(network[1 + i]) for i in range(count))
    self._namespaces: list[namespaces.Namespace] = []
    try:
      for link, host in zip(self._links, self.hosts, strict=True):
        self._namespaces.append(namespaces.Namespace())
        self._namespaces[-1].run(functools.partial(
            _connect, link, f"{host}/{network.prefixlen}", bytes_per_second))
      _run("ip", [f"addr add {network[_CLIENT]}/{network.prefixlen} dev "
                  f"{self._switch}", f"link set {self._switch} up",
                  *(f"link set {link} master {self._switch} up"
                    for link in self._links)])
      _run("tc", [line for link in self._links
                  for line in _shaping(link, bytes_per_second)])
    except BaseException:
      self.remove()
      raise

  def set_rate(self, bytes_per_second: float) -> None:
    """Changes what each may send, and receive, whatever is under way."""
    for namespace in self._namespaces:
      namespace.run(functools.partial(
          _run, "tc", [_limit("change", _INTERFACE, bytes_per_second)]))
    _run("tc", [_limit("change", link, bytes_per_second)
                for link in self._links])

  def run_on_host(self, index: int, action: Callable[[], _T]) -> _T:
    """Returns what an action does in a namespace, such as start a process."""
    return self._namespaces[index].run(action)

  def remove(self) -> None:
    """Takes all of it away; processes that are still inside are cut off."""
    there = {name for _, name in socket.if_nameindex()}
    try:
      _run("ip", [f"link del {name}" for name in (*self._links, self._switch)
                  if name in there])
    finally:  # Not before: a namespace that ends takes its cable along.
      for namespace in self._namespaces:
        namespace.close()


def _claim_switch() -> tuple[int, ipaddress.IPv4Network]:
  """Makes a bridge; its number is no other's in this network."""
  for number, network in enumerate(_ADDRESSES.subnets(new_prefix=24)):
    try:
      _run("ip", [f"link add switch{number} type bridge"])
    except errors.ClusterError as error:
      if "File exists" not in str(error):
        raise
    else:
      return number, network
  raise errors.ClusterError(
      "this network has as many clusters with cables as it can have; stop one.")


def _connect(link: str, address: str, bytes_per_second: float) -> None:
  """Lays a cable from the namespace of this thread to the process's own."""
  for name in _CONGESTION_CONTROLS:
    try:
      with open(_CONGESTION_CONTROL, "w", encoding="ascii") as file:
        file.write(name)
      break
    except OSError:  # The system must allow it to namespaces.
      continue
  _run("ip", [
      "link set lo up",
      f"link add {_INTERFACE} type veth peer name {link} netns {os.getpid()}",
      f"addr add {address} dev {_INTERFACE}",
      f"link set {_INTERFACE} up"])
  _run("tc", _shaping(_INTERFACE, bytes_per_second))


def _shaping(interface: str, bytes_per_second: float) -> list[str]:
  """Returns tc's commands that limit what leaves by an interface."""
  return [f"qdisc add dev {interface} root handle 1: htb default 1",
          _limit("add", interface, bytes_per_second)]


def _limit(verb: str, interface: str, bytes_per_second: float) -> str:
  """Returns tc's command for the limit itself, to "add" or "change" it."""
  bits = max(8, round(bytes_per_second * 8))
  burst = max(_LEAST_BURST, round(bytes_per_second * _BURST_SECONDS))
  return (f"class {verb} dev {interface} parent 1: classid 1:1 htb "
          f"rate {bits}bit ceil {bits}bit burst {burst}b cburst {burst}b "
          f"quantum {_QUANTUM}")


def _path(program: str) -> str:
  found = shutil.which(program, path=os.pathsep.join(
      [os.environ.get("PATH", os.defpath), *_FOLDERS]))
  if found is None:
    raise errors.ClusterError(
        f"`bandwidth` needs the program `{program}`, and there is none; "
        "install iproute2 (Debian, Ubuntu: apt-get install iproute2).")
  return found


def _run(program: str, lines: Sequence[str]) -> None:
  """Runs commands of ip or tc where this thread is, up to the first error."""
  try:
    done = subprocess.run(
        [_path(program), "-batch", "-"], input="\n".join(lines) + "\n",
        capture_output=True, text=True, timeout=_SECONDS, check=False,
        env=os.environ | {"LC_ALL": "C"},
        start_new_session=True)  # Ctrl-C is this process's to handle.
  except subprocess.TimeoutExpired:
    raise errors.ClusterError(
        f"after {_SECONDS:g} s, `{program}` has not ended: {'; '.join(lines)}"
    ) from None
  if done.returncode != 0:
    raise errors.ClusterError(
        f"no cables: `{program}` refused one of: {'; '.join(lines)}. It said: "
        f"{' '.join(done.stderr.split())} The kernel must have bridge, veth "
        "and htb.")
