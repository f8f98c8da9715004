"""What can happen while programs run, in one queue."""

import dataclasses
import queue
import signal
import time
from collections.abc import Iterator
from typing import Any

from tf_cdops.cli.launching import guard


@dataclasses.dataclass(frozen=True)
class Ended:
  """A program has ended.

  Attributes:
    name: whose it was, such as "worker 0".
    code: its exit code; if a signal killed it, the negative of its number.
    pid: its process number, by which it isn't taken for that of another run.
  """

  name: str
  code: int
  pid: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True)
class Told:
  """A signal has told the launcher to end."""

  number: int

  @property
  def code(self) -> int:
    """The exit code that says so, as shells have it."""
    return 128 + self.number


@dataclasses.dataclass(frozen=True)
class OutputLost:
  """What the programs print can't be passed on any more."""

  reason: str
  code: int


Event = Ended | Told | OutputLost


class Events:
  """Threads and signal handlers put events here, and one thread takes them."""

  def __init__(self) -> None:
    self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

  def put(self, event: Event) -> None:
    self._queue.put(event)

  def take_signals(self) -> None:
    """Makes an event of each signal that would end this process."""
    def tell(number: int, _: Any) -> None:
      self.put(Told(number))

    for number in {*guard.SIGNALS, guard.ORPHANED}:
      if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, tell)

  def get(self, timeout: float) -> Event | None:
    """Returns the next event, or None after so many seconds without one."""
    try:
      return self._queue.get(timeout=max(0.0, timeout))
    except queue.Empty:
      return None

  def until(self, deadline: float) -> Iterator[Event]:
    """Yields events up to a time of `time.monotonic`."""
    while (event := self.get(deadline - time.monotonic())) is not None:
      yield event
