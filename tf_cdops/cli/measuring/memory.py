"""Whether a load fits in memory, asked before it is made."""

import os
import re

from tf_cdops.base import errors
from tf_cdops.planning import spec

# Inputs, results, what an algorithm holds on its way, and packs.
_COPIES = 4


def available_bytes() -> int | None:
  """Returns how much memory programs can still get; None if unknown."""
  try:
    with open("/proc/meminfo", encoding="ascii") as file:
      match = re.search(r"^MemAvailable:\s+(\d+) kB", file.read(), re.MULTILINE)
    if match:
      return int(match[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
  except (OSError, ValueError, AttributeError):
    return None


def check_fits(num_bytes: int, replicas: int, argument: str,
               available: int | None = None) -> None:
  """Raises if a load surely won't fit.

  Args:
    num_bytes: of all tensors, on one replica. Contenders share them.
    replicas: how many devices of this machine hold them.
    argument: what asked for them.
    available: the memory there is; None to look.
  """
  available = available_bytes() if available is None else available
  needed = num_bytes * replicas * _COPIES
  if available is not None and needed > available:
    largest = available // (replicas * _COPIES)
    raise errors.InputError(
        f"`{argument}` ({_brief(num_bytes)} on each of {replicas} devices) "
        f"must fit in memory: that takes about {_brief(needed)}, and "
        f"{_brief(available)} are available; reduce at most "
        f"{_brief(largest)}, or use fewer devices.")


def _brief(num_bytes: int) -> str:
  """Rounds to a whole number of the largest unit that leaves one."""
  for unit in (1 << 30, 1 << 20, 1 << 10):
    if num_bytes >= 10 * unit:
      return spec.format_bytes(num_bytes // unit * unit)
  return spec.format_bytes(num_bytes)
