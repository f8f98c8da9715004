"""Runs one program, as the client of workers that are TensorFlow servers."""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_cdops.cluster import cables
from tf_cdops.cluster import local

_PR_SET_PDEATHSIG = 1
# How long a program may take to end by a Ctrl-C that a terminal gave it, too,
# before it gets the launcher's.
_CTRL_C_SECONDS, _POLL_SECONDS = 1.0, 0.1


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
  """Starts the workers and runs a command; returns its exit code."""
  cables.enter_network(shaped=args.bandwidth is not None)
  with _workers(args) as environment:
    return _run(command, environment)


@contextlib.contextmanager
def _workers(args: argparse.Namespace) -> Iterator[dict[str, str]]:
  """Starts the workers; yields the variables that tell of them."""
  if not args.workers:
    yield {}
    return
  with local.LocalCluster(args.workers, args.devices or 1,
                          bandwidth=args.bandwidth) as cluster:
    yield {"TF_CONFIG": json.dumps({
        "cluster": cluster.as_dict(), "task": {"type": "client", "index": 0}})}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
  """Runs a program that gets this process's signals and ends with it."""
  libc = ctypes.CDLL(None) if sys.platform == "linux" else None
  parent = os.getpid()

  def end_with_parent() -> None:
    if libc is not None:
      libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
      if os.getppid() != parent:  # It has ended already.
        os._exit(1)

  process = subprocess.Popen(command, env=os.environ | environment,
                             preexec_fn=end_with_parent)

  def pass_on(number: int, _: Any) -> None:
    process.send_signal(number)

  interrupted: list[float] = []  # When.
  handlers = {
      signal.SIGINT: lambda *_: interrupted.append(time.monotonic()),
      signal.SIGTERM: pass_on}
  before = {number: signal.signal(number, handler)
            for number, handler in handlers.items()}
  try:
    while (code := _waited(process)) is None:
      # A terminal gives Ctrl-C to both; whoever signals the launcher doesn't.
      if interrupted and (
          time.monotonic() > interrupted[0] + _CTRL_C_SECONDS):
        interrupted.clear()
        if not _is_in_the_foreground():
          process.send_signal(signal.SIGINT)
  finally:
    process.kill()
    process.wait()
    for number, handler in before.items():
      signal.signal(number, handler)
  return code if code >= 0 else 128 - code


def _waited(process: "subprocess.Popen[bytes]") -> int | None:
  """Waits a moment; returns the exit code, or None."""
  try:
    return process.wait(_POLL_SECONDS)
  except subprocess.TimeoutExpired:
    return None


def _is_in_the_foreground() -> bool:
  """Whether this and the program get what is typed at a terminal."""
  try:
    with open("/dev/tty", "rb") as terminal:
      return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
  except OSError:
    return False
