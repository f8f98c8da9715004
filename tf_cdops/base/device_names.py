"""TensorFlow's device names as values, without TensorFlow.

A name is "/job:worker/replica:0/task:1/device:GPU:0"; every part may be left
out, and "/gpu:0", "GPU:0" and "/device:GPU:0" mean the same.
"""

import dataclasses
import functools
import re

from tf_cdops.base import errors

_PART = re.compile(
    r"""job:(?P<job>[a-zA-Z]\w*)
        |replica:(?P<replica>\d+)
        |task:(?P<task>\d+)
        |(?:device:(?P<long>[a-zA-Z]\w*)|(?P<short>(?i:cpu|gpu|tpu)))
         (?::(?P<index>\d+|\*))?""", re.VERBOSE | re.ASCII)
_FORM = "/job:NAME/replica:N/task:N/device:TYPE:N, every part optional"


@dataclasses.dataclass(frozen=True)
class DeviceName:
  """A parsed device name; None stands for a part that was left out."""

  job: str | None = None
  replica: int | None = None
  task: int | None = None
  type: str | None = None
  index: int | None = None

  @property
  def worker(self) -> tuple[str | None, int, int]:
    """Which worker the device is on: (job, replica, task)."""
    return self.job, self.replica or 0, self.task or 0

  def admits(self, other: "DeviceName") -> bool:
    """Whether `other` has every part that is given here."""
    return all(
        mine is None or mine == theirs
        for mine, theirs in zip(dataclasses.astuple(self),
                                dataclasses.astuple(other), strict=True))

  def filled(self, default: "DeviceName") -> "DeviceName":
    """Returns this name with missing parts taken from `default`."""
    return DeviceName(*(
        theirs if mine is None else mine
        for mine, theirs in zip(dataclasses.astuple(self),
                                dataclasses.astuple(default), strict=True)))

  def __str__(self) -> str:
    parts = []
    for label in ("job", "replica", "task"):
      value = getattr(self, label)
      if value is not None:
        parts.append(f"/{label}:{value}")
    if self.type is not None:
      index = "*" if self.index is None else self.index
      parts.append(f"/device:{self.type}:{index}")
    return "".join(parts)


def parse(name: object, argument: str = "device") -> DeviceName:
  """Parses a device name; `argument` is what an error calls it."""
  parts: dict[str, str] = {}
  texts = name.removeprefix("/").split("/") if isinstance(name, str) else ()
  for text in texts:
    match = _PART.fullmatch(text)
    found = {key: value for key, value in match.groupdict().items()
             if value is not None} if match else {}
    if not found or parts.keys() & found.keys():
      parts = {}
      break
    parts |= found
  if not parts or {"long", "short"} <= parts.keys():
    raise errors.DeviceError(
        f"`{argument}` ({name!r}) must be a device name; write it as {_FORM}, "
        "for example '/gpu:0' or '/job:worker/task:1/device:CPU:0'.")
  device_type = parts.get("long") or parts.get("short")
  return DeviceName(
      job=parts.get("job"),
      replica=_number(parts.get("replica")),
      task=_number(parts.get("task")),
      type=device_type.upper() if device_type else None,
      index=_number(parts.get("index")))


@functools.lru_cache(maxsize=4096)
def may_be_same(first: str, second: str) -> bool:
  """Whether two names agree in every part that both of them give."""
  one, two = (parse(name) if name else DeviceName()
              for name in (first, second))
  return one.filled(two) == two.filled(one)


def _number(text: str | None) -> int | None:
  return None if text in (None, "*") else int(text)
