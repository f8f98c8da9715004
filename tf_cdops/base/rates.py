"""Rates of links, as people and tc write them: "500mbit", "25 GB/s"."""

import re
from typing import Any

from tf_cdops.base import errors

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
# In bits, with or without "/s", as tc has them; or in bytes, with it. What is
# left out means bits to some and bytes to others: Mb/s, and tc's mbps.
_RATE = re.compile(
    r"(\d+(?:\.\d*)?|\.\d+)\s*([kKmMgGtT]?)((?i:bit)(?:/s)?|B/s)")


def parse(text: Any, name: str) -> float:
  """Returns bytes a second.

  Args:
    text: a number and a unit: bit, kbit, Mbit, Gbit or Tbit, in any case and
      with or without "/s"; or B/s, kB/s, MB/s, GB/s or TB/s. Prefixes are
      powers of 1000.
    name: what an error calls the argument.

  Raises:
    InputError: for anything else, and for 0.

  >>> parse("500mbit", "bandwidth")
  62500000.0
  """
  match = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
  rate = (float(match[1]) * _PREFIXES[match[2].lower()]
          / (1 if match[3] == "B/s" else 8) if match else 0.0)
  if not 0 < rate < float("inf"):
    raise errors.InputError(
        f"`{name}` ({text!r}) must be a positive number with a unit, in bits "
        "(kbit, Mbit, Gbit) or bytes (kB/s, MB/s, GB/s), such as 500mbit or "
        "25GB/s.")
  return rate


def split(text: str, name: str) -> list[str]:
  """Returns the rates of a list, "1gbit,100mbit" say, the slowest first.

  Args:
    text: one rate or more, with commas between.
    name: what an error calls the argument.

  Raises:
    InputError: for what isn't a rate, and for one that is there twice.

  >>> split("1gbit, 100mbit", "bandwidth")
  ['100mbit', '1gbit']
  """
  found: dict[float, str] = {}
  for item in text.split(","):
    item = item.strip()
    rate = parse(item, name)
    if rate in found:
      raise errors.InputError(
          f"`{name}` ({text}) must have each rate once, and {found[rate]} and "
          f"{item} are the same; leave one out.")
    found[rate] = item
  return [found[rate] for rate in sorted(found)]
