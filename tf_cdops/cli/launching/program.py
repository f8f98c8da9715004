"""One worker's program: a process in a session of its own."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from tf_cdops.base import errors
from tf_cdops.cli.launching import descendants
from tf_cdops.cli.launching import events as events_lib

Starter = Callable[[Callable[[], "subprocess.Popen[bytes]"]],
                   "subprocess.Popen[bytes]"]


class Program:
  """A program that runs; its end is an event.

  Attributes:
    name: whose it is, such as "worker 0".
    pid: its process number.
    code: as `events.Ended` has it; None while it runs.
  """

  def __init__(self, name: str, command: Sequence[str],
               environment: Mapping[str, str], start_there: Starter,
               events: events_lib.Events):
    """Starts it.

    Args:
      name: whose it is.
      command: what to run.
      environment: all of its variables.
      start_there: calls what it is given where the program is to be.
      events: where its end is told.

    Raises:
      ClusterError: the system refuses.
    """
    self.name = name
    self.code: int | None = None
    try:
      self._process = start_there(lambda: subprocess.Popen(
          command, env=environment, stdin=subprocess.DEVNULL,
          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
          start_new_session=True))
    except OSError as error:  # There may be no processes or files left.
      raise errors.ClusterError(
          f"the program of {name} can't be started: {error.strerror}. Mend "
          "that, or start fewer workers.") from None
    self.pid = self._process.pid
    self._events = events
    threading.Thread(target=self._wait, daemon=True).start()

  @property
  def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
    """What it prints: standard output, and standard error."""
    assert self._process.stdout is not None
    assert self._process.stderr is not None
    return self._process.stdout, self._process.stderr

  @property
  def runs(self) -> bool:
    return self.code is None

  @property
  def is_stopped(self) -> bool:
    return self.runs and descendants.is_stopped(self.pid)

  def signal(self, number: int) -> None:
    """Sends a signal to it and to what it started, while it runs."""
    if self.runs:
      with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(self.pid, number)

  def kill(self) -> None:
    self.signal(signal.SIGKILL)

  def _wait(self) -> None:
    self.code = self._process.wait()
    self._events.put(events_lib.Ended(self.name, self.code, self.pid))
