"""Serves as one worker of a cluster, until it is told to stop.

The cluster is that of TF_CONFIG, or of --cluster and --task. Another program
drives it with tf_cdops.multi_worker_strategy or a tf.compat.v1.Session.
"""

import argparse
import os
import sys

from tf_cdops.base import errors
from tf_cdops.cluster import addresses
from tf_cdops.cluster import interfaces
from tf_cdops.cluster import ports

NAME = "worker"


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      "--cluster", metavar="HOST:PORT,…",
      help="the workers' addresses, or a cluster as JSON (default: TF_CONFIG)")
  parser.add_argument("--job", default="worker",
                      help="this task's job (default: worker)")
  parser.add_argument("--task", type=int, metavar="N",
                      help="this task's number in its job")
  parser.add_argument("--cpu_devices", type=int, metavar="N",
                      help="logical CPU devices to offer (default: 1)")
  parser.add_argument("--until_stdin_closes", action="store_true",
                      help="end when standard input does")


def run(args: argparse.Namespace) -> int:
  """Serves; returns only for an error."""
  from tf_cdops.cluster import server  # Loads TensorFlow.
  if args.cpu_devices is not None:
    errors.check_whole_number("--cpu_devices", args.cpu_devices, 1)
  cluster = (addresses.described(addresses.parse_text(args.cluster), args.job,
                                 args.task)
             if args.cluster else addresses.from_tf_config())
  if cluster is None:
    raise errors.InputError(
        "there is no cluster: give --cluster and --task, or set TF_CONFIG.")
  if cluster.own is None:
    given = (f"`--task` (/job:{args.job}/task:{args.task})" if args.cluster
             else f"the task of `TF_CONFIG` ({os.environ['TF_CONFIG']})")
    raise errors.InputError(
        f"{given} must be one of the "
        f"cluster's tasks: {', '.join(map(str, cluster.tasks))}.")
  ports.wait_until_free(addresses.split_address(cluster.own.address)[1], 0.0)
  if not args.until_stdin_closes:
    print(f"Warning: {interfaces.WARNING}", file=sys.stderr)
  server.serve(cluster, args.cpu_devices, args.until_stdin_closes, args.json)
  return 0
