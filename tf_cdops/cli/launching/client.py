"""Runs one program, as the client of workers that are TensorFlow servers."""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_cdops.cluster import cables
from tf_cdops.cluster import local

_PR_SET_PDEATHSIG = 1


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

  # A terminal gives Ctrl-C to both; the program says what becomes of it.
  handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: pass_on}
  before = {number: signal.signal(number, handler)
            for number, handler in handlers.items()}
  try:
    code = process.wait()
  finally:
    process.kill()
    process.wait()
    for number, handler in before.items():
      signal.signal(number, handler)
  return code if code >= 0 else 128 - code
