"""Shares of this machine's processors, so that hosts compute side by side.

Real hosts have their own. Processes that share two cores don't run evenly: of
four that train, one sent from 0.65 to 0.87 s of a step and then nothing up to
1.23 s, for sums wait for the last. With shares all send on.
"""

import contextlib
import os
import pathlib

from tf_cdops.base import errors

_ROOT = pathlib.Path("/sys/fs/cgroup")
# A host that has had its part of so many microseconds waits for the next.
_PERIOD = 4000


class Shares(contextlib.ExitStack):
  """A context manager: control groups, an equal part of all cores each."""

  def __init__(self, hosts: int, root: pathlib.Path = _ROOT):
    """Initializes.

    Args:
      hosts: how many.
      root: where control groups are.
    """
    super().__init__()
    self._hosts, self._root, self._groups = hosts, root, list[pathlib.Path]()

  def __enter__(self) -> "Shares":
    quota = _PERIOD * len(os.sched_getaffinity(0)) // self._hosts
    if (self._root / "cgroup.controllers").exists():  # Version 2, untried.
      files = {"cpu.max": f"{quota} {_PERIOD}"}
      there = self._root
      settings = {there / "cgroup.subtree_control": "+cpu"}
    else:
      files = {"cpu.cfs_period_us": str(_PERIOD),
               "cpu.cfs_quota_us": str(quota)}
      there, settings = self._root / "cpu", {}
    try:
      for host in range(self._hosts):
        group = there / f"tf_cdops-{os.getpid()}-{host}"
        group.mkdir()
        self.callback(group.rmdir)
        self._groups.append(group)
        settings |= {group / name: text for name, text in files.items()}
      for path, text in settings.items():
        path.write_text(text, encoding="ascii")
    except OSError as error:
      self.close()
      raise errors.ClusterError(
          f"hosts have no shares of the processors: {error}; run this as root, "
          "on Linux with control groups for `cpu`.") from None
    return self

  def give(self, host: int, process: int) -> None:
    """Lets a process, by its number, have no more than a host's share."""
    (self._groups[host] / "cgroup.procs").write_text(str(process),
                                                     encoding="ascii")
