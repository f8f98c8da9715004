"""Runs a training program once for each worker, or once as their client.

On one machine, to try: starts the workers' programs, with TF_CONFIG set as
tf.distribute.MultiWorkerMirroredStrategy and tf_cdops.SpmdStrategy read it:

    tf_cdops launch --workers=4 train.py --epochs=2
    tf_cdops launch --workers=4 --bandwidth=1gbit -m package.train

On several machines, run it on each, which starts that machine's program. The
cluster is that of TF_CONFIG, or of --cluster and --task:

    tf_cdops launch --cluster=10.0.0.5:2222,10.0.0.6:2222 --task=0 train.py

Each line that a program prints has its worker's name before it. When one fails,
all end, and the exit code is that one's (128 + n for the signal n); so they do
with Ctrl-C, SIGTERM or the death of the launcher. With --max_restarts all start
again, and tf_cdops.cluster.BackupAndRestore resumes; TF_CDOPS_RESTART counts
restarts. A worker that ends well before the others leaves them --grace seconds.

With --client the program runs once and drives the workers: TensorFlow servers
on this machine, of --devices logical CPUs each, that end with it. TF_CONFIG
tells it of them, and that it is a client:

    tf_cdops launch --workers=4 --bandwidth=500mbit --client train.py --epochs=2

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf_cdops.multi_worker_strategy(resolver)

Without --workers, such a program starts its own workers:
LocalCluster(bandwidth="500mbit") works in here, and nowhere else.

With --trace=FILE, programs whose `fit` has the callback tf_cdops.Timeline()
show where a step's time goes, as `tf_cdops trace` does; without it, that
callback does nothing.

With --bandwidth each worker is a host with a cable of that rate, both ways, to
one switch; a client is on the switch, with no limit. Nothing in there, nor
under --client, reaches another network or is reached from one: fetch data
before. It takes Linux and, for cables, iproute2; either root or a system that
lets users have namespaces.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Callable

from tf_cdops.base import errors
from tf_cdops.base import output_files
from tf_cdops.cli import site_flags
from tf_cdops.cli.launching import client
from tf_cdops.cli.launching import guard
from tf_cdops.cli.launching import places
from tf_cdops.cli.launching import restarts
from tf_cdops.cli.launching import supervisor
from tf_cdops.cluster import cables
from tf_cdops.explaining import timeline

NAME = "launch"
_MAX_WORKERS = 64
_MAX_RESTARTS = 1_000_000
_GRACE = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.allow_abbrev = False  # The program's flags aren't short for these.
  where = parser.add_argument_group("the workers")
  where.add_argument("--workers", type=int, metavar="N",
                     help="how many to start, on this machine")
  where.add_argument("--devices", type=int, metavar="N",
                     help="logical CPU devices of each; programs get it as "
                          "TF_CDOPS_DEVICES, and see no GPUs then (default: "
                          "what TensorFlow finds; 1 with --client)")
  site_flags.add_bandwidth(where)
  where.add_argument("--cluster", metavar="HOST:PORT,…",
                     help="the workers' addresses on several machines, or a "
                          "cluster as JSON (default: TF_CONFIG)")
  where.add_argument("--task", type=int, metavar="N",
                     help="which of them is this machine's, from 0")
  ends = parser.add_argument_group("their ends")
  ends.add_argument("--max_restarts", type=int, metavar="N",
                    help="how often to start again when one fails (default: 0)")
  ends.add_argument("--grace", type=float, metavar="SECONDS",
                    help="how long others may run on when one has ended with "
                         f"exit code 0; inf for ever (default: {_GRACE:g})")
  parser.add_argument("--trace", metavar="FILE",
                      help=f"sets {timeline.VARIABLE}, by which a program's "
                           "tf_cdops.Timeline() writes this file")
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
  command = [sys.executable, *(["-m"] if args.module else []), args.program,
             *args.arguments]
  if args.client:
    return _tracing(args.trace, lambda: client.run(args, command))
  if os.name != "posix":
    raise errors.InputError(
        f"`PROGRAM` ({args.program}) must run on Linux or macOS; this is "
        f"{sys.platform}.")
  tf_config = None
  if not args.workers:
    tf_config = places.find_tf_config(args.cluster, args.task)
    if tf_config is None:
      raise errors.InputError(
          f"`PROGRAM` ({args.program}) must have workers; give --workers=4, "
          "say, or on several machines --cluster and --task or TF_CONFIG, or "
          "--client for a program that drives workers.")
  if args.bandwidth is not None:
    cables.enter_network(shaped=True)
  code = guard.divide()
  if code is not None:
    return code
  return _tracing(args.trace, lambda: _run(args, command, tf_config))


def _run(args: argparse.Namespace, command: list[str],
         tf_config: str | None) -> int:
  """Runs the programs of this machine's workers."""
  task = supervisor.Task(command, restarts.environment(args.devices),
                         _GRACE if args.grace is None else args.grace)
  if tf_config is not None:
    return restarts.run(task, places.own_task(tf_config),
                        args.max_restarts or 0)
  with places.this_machine(args.workers, args.bandwidth) as place:
    return restarts.run(task, place, args.max_restarts or 0)


def _tracing(path: str | None, run: Callable[[], int]) -> int:
  """Runs programs that are told to write a timeline; says if none did."""
  if path is None:
    return run()
  os.environ[timeline.VARIABLE] = os.path.abspath(path)
  before = _written(path)
  code = run()
  if code == 0 and _written(path) == before:
    print(f"tf_cdops launch: `--trace` ({path}) wasn't written: no program of "
          "this machine has a tf_cdops.Timeline(), or another machine's is "
          "the first; give it to `fit`, among the callbacks.", file=sys.stderr)
  return code


def _written(path: str) -> int | None:
  """Returns when a file was written; None if there is none."""
  return os.stat(path).st_mtime_ns if os.path.exists(path) else None


def _check(args: argparse.Namespace) -> None:
  if args.json:
    raise errors.InputError(
        "`--json` must be left out: what is printed is the programs'; look at "
        "the exit code.")
  args.workers = args.workers or 0
  errors.check_whole_number("--workers", args.workers, 0, _MAX_WORKERS)
  if args.devices is not None:
    errors.check_whole_number("--devices", args.devices, 1, _MAX_WORKERS)
  site_flags.check_bandwidth(args)
  if args.trace is not None:
    output_files.check_writable(args.trace, "--trace")
  _check_cluster(args)
  if args.client:
    for flag in ("cluster", "max_restarts", "grace"):
      if getattr(args, flag) is not None:
        raise errors.InputError(
            f"`--{flag}` ({getattr(args, flag)}) must be left out with "
            "--client, which runs one program.")
  if args.max_restarts is not None:
    errors.check_whole_number("--max_restarts", args.max_restarts, 0,
                              _MAX_RESTARTS)
  if args.grace is not None and not args.grace > 0:
    raise errors.InputError(
        f"`--grace` ({args.grace:g}) must be above 0 seconds.")
  if not args.module and not pathlib.Path(args.program).exists():
    raise errors.InputError(
        f"`PROGRAM` ({args.program}) must be a file that is there; mend its "
        "path, or give -m for a module.")


def _check_cluster(args: argparse.Namespace) -> None:
  if args.cluster is not None and args.workers:
    raise errors.InputError(
        f"`--workers` ({args.workers}) must be left out with --cluster: those "
        "start on this machine, and the cluster's on theirs; give one.")
  if args.cluster is not None and args.task is None:
    raise errors.InputError(
        f"`--cluster` ({args.cluster}) must come with --task, which tells "
        "which of its workers is this machine's; give --task=0 on the first.")
  if args.task is not None and args.cluster is None:
    raise errors.InputError(
        f"`--task` ({args.task}) must come with --cluster, whose task it is; "
        "give both, or neither and set TF_CONFIG.")
