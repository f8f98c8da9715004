"""Passes on what programs print, line by line, each with its worker's name.

What is printed and can't be passed on yet stays in the programs' pipes: they
wait, and memory doesn't grow.
"""

import errno
import os
import select
import selectors
import signal
import threading
import time
from collections.abc import Callable
from typing import IO

from tf_cdops.cli.launching import events as events_lib
from tf_cdops.cli.launching import prefixing

_CHUNK = 65_536
_POLL_SECONDS = 0.5
_HELD_SECONDS = 1.0  # How long the rest of a line is waited for.
_COLOURS = (36, 33, 32, 35, 34, 31)
_STDOUT, _STDERR = 1, 2


class Output:
  """This process's standard output and error, as programs' lines go there."""

  def __init__(self, events: events_lib.Events):
    one, other = threading.Lock(), threading.Lock()
    # Where both go to one file, a line of one must not get into the other's.
    same = _identity(_STDOUT) == _identity(_STDERR)
    self._stdout = _Destination(_STDOUT, one, events)
    self._stderr = _Destination(_STDERR, one if same else other, events)

  def say(self, message: str) -> None:
    """Prints a message of the launcher's own on standard error."""
    self._stderr.write(f"tf_cdops launch: {message}\n".encode(
        errors="backslashreplace"))

  def start(self) -> "Pumps":
    """Returns what passes on the output of programs that are added to it."""
    return Pumps(self._stdout, self._stderr)


class _Destination:
  """A file to which whole lines are written."""

  def __init__(self, descriptor: int, lock: threading.Lock,
               events: events_lib.Events):
    self._descriptor, self._lock, self._events = descriptor, lock, events
    self._lost = False
    self.is_terminal = os.isatty(descriptor)

  def write(self, data: bytes) -> None:
    """Writes all of it, or nothing after the first failure."""
    with self._lock:
      while data and not self._lost:
        try:
          data = data[os.write(self._descriptor, data):]
        except BlockingIOError:  # Whoever opened the file wanted it so.
          select.select([], [self._descriptor], [], _POLL_SECONDS)
        except OSError as error:
          self._lost = True
          closed = error.errno == errno.EPIPE
          self._events.put(events_lib.OutputLost(
              "nobody reads the output any more" if closed else
              f"the output can't be written: {error.strerror}",
              128 + signal.SIGPIPE if closed else 1))


class Pumps:
  """Passes on the output of several programs; `finish` when all have ended."""

  def __init__(self, stdout: _Destination, stderr: _Destination):
    self._pumps = (_Pump(stdout), _Pump(stderr))

  def add(self, name: str, number: int, stdout: IO[bytes],
          stderr: IO[bytes]) -> None:
    """Adds a program, by its worker's name and number, and its pipes."""
    for pump, pipe in zip(self._pumps, (stdout, stderr), strict=True):
      pump.add(name, number, pipe)

  def start(self) -> None:
    for pump in self._pumps:
      pump.thread.start()

  def finish(self, keep_on: Callable[[], bool]) -> None:
    """Waits until all is passed on.

    Args:
      keep_on: asked now and then, while whoever reads the output lets it wait.
    """
    for pump in self._pumps:
      pump.closing = True
    for pump in self._pumps:
      while pump.thread.is_alive() and keep_on():
        pump.thread.join(_POLL_SECONDS)


class _Source:
  """One program's pipe, and since when a part of a line is held back."""

  def __init__(self, pipe: IO[bytes], prefix: bytes):
    self.pipe, self.lines = pipe, prefixing.Prefixer(prefix)
    self._since = 0.0

  def feed(self, data: bytes) -> bytes:
    held = self.lines.holds
    given = self.lines.feed(data)
    if given or not held:
      self._since = time.monotonic()
    return given

  def overdue(self) -> bytes:
    """Returns what was held back for long enough."""
    if self.lines.holds and time.monotonic() - self._since > _HELD_SECONDS:
      self._since = time.monotonic()
      return self.lines.flush()
    return b""


class _Pump:
  """A thread from many pipes to one destination."""

  def __init__(self, destination: _Destination):
    self._destination = destination
    self._sources = selectors.DefaultSelector()
    self.closing = False  # Whether to end as soon as the pipes are silent.
    self.thread = threading.Thread(target=self._run, daemon=True)

  def add(self, name: str, number: int, pipe: IO[bytes]) -> None:
    prefix = f"[{name}]"
    if self._destination.is_terminal and "NO_COLOR" not in os.environ:
      prefix = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{prefix}\x1b[0m"
    self._sources.register(pipe, selectors.EVENT_READ,
                           _Source(pipe, f"{prefix} ".encode()))

  def _run(self) -> None:
    while self._sources.get_map():
      closing = self.closing
      ready = self._sources.select(_POLL_SECONDS)
      for key, _ in ready:
        data = os.read(key.fd, _CHUNK)
        if data:
          self._destination.write(key.data.feed(data))
        else:
          self._end(key.data)
      for source in self._all():
        if closing and not ready:
          self._end(source)
        else:
          self._destination.write(source.overdue())
    self._sources.close()

  def _all(self) -> list[_Source]:
    return [key.data for key in self._sources.get_map().values()]

  def _end(self, source: _Source) -> None:
    self._destination.write(source.lines.flush(final=True))
    self._sources.unregister(source.pipe)
    source.pipe.close()


def _identity(descriptor: int) -> tuple[int, int] | None:
  try:
    status = os.fstat(descriptor)
  except OSError:  # It is closed.
    return None
  return status.st_dev, status.st_ino
