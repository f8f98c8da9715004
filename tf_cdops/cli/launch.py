"""Runs a program in a network of its own, and workers for it.

With --client the program runs once and drives the workers: TensorFlow servers
on this machine, of --devices logical CPUs each, that end with it. With
--bandwidth each is a host with a cable of that rate, both ways, to one switch;
the program is on the switch, with no limit. So a link's speed can be tried
before there are links:

    tf_cdops launch --workers=4 --bandwidth=500mbit --client train.py --epochs=2

TF_CONFIG tells the program of the workers, and that it is a client:

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf_cdops.multi_worker_strategy(resolver)

Without --workers, a program starts its own: LocalCluster(bandwidth="500mbit")
works in here, and nowhere else.

Nothing in here reaches another network, nor is reached from one: fetch data
before. It takes Linux and, for cables, iproute2; either root or a system that
lets users have namespaces. The exit code is the program's.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_cdops.base import errors
from tf_cdops.cli import site_flags
from tf_cdops.cluster import cables
from tf_cdops.cluster import local

NAME = "launch"
_PR_SET_PDEATHSIG = 1
_MAX_WORKERS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.allow_abbrev = False  # The program's flags aren't short for these.
  where = parser.add_argument_group("the workers")
  where.add_argument("--workers", type=int, default=0, metavar="N",
                     help="how many to start; 0 for none (default: 0)")
  where.add_argument("--devices", type=int, default=1, metavar="N",
                     help="logical CPU devices of each (default: 1)")
  site_flags.add_bandwidth(where)
  what = parser.add_argument_group("the program")
  what.add_argument("--client", action="store_true",
                    help="run it once, as the client of the workers")
  what.add_argument("-m", "--module", action="store_true",
                    help="PROGRAM is a module's name, as for `python -m`")
  what.add_argument("program", metavar="PROGRAM", help="a Python program")
  what.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…",
                    help="what the program is given")


def run(args: argparse.Namespace) -> int:
  """Runs the program; returns its exit code."""
  _check(args)
  cables.enter_network(shaped=args.bandwidth is not None)
  with _workers(args) as environment:
    return _run([sys.executable, *(["-m"] if args.module else []), args.program,
                 *args.arguments], environment)


def _check(args: argparse.Namespace) -> None:
  errors.check_whole_number("--workers", args.workers, 0, _MAX_WORKERS)
  errors.check_whole_number("--devices", args.devices, 1, _MAX_WORKERS)
  site_flags.check_bandwidth(args)
  if not args.client:
    raise errors.InputError(
        f"`PROGRAM` ({args.program}) must run as a client; give --client "
        "before it.")
  if not args.module and not pathlib.Path(args.program).exists():
    raise errors.InputError(
        f"`PROGRAM` ({args.program}) must be a file that is there; mend its "
        "path, or give -m for a module.")


@contextlib.contextmanager
def _workers(args: argparse.Namespace) -> Iterator[dict[str, str]]:
  """Starts the workers; yields the variables that tell of them."""
  if not args.workers:
    yield {}
    return
  with local.LocalCluster(args.workers, args.devices,
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
