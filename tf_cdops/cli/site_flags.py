"""The flags that say on which devices to measure."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tf_cdops.base import errors
from tf_cdops.base import rates
from tf_cdops.cluster import cables
from tf_cdops.planning import planner

if TYPE_CHECKING:
  from tf_cdops.cli.measuring import sites

_MAX_DEVICES, _MAX_DEMO_DEVICES = 64, 16
_DEFAULT_CPUS = 4
_TF_CONFIG = "TF_CONFIG"


def add_arguments(parser: argparse.ArgumentParser,
                  several_rates: bool = False) -> None:
  """Adds --devices, --device_type, --workers, --bandwidth and --cluster."""
  group = parser.add_argument_group("where")
  group.add_argument(
      "--devices", type=int, metavar="N",
      help="devices, of each worker: logical CPUs, or GPUs (default: all GPUs, "
           f"or {_DEFAULT_CPUS} logical CPUs where there are fewer than 2)")
  group.add_argument("--device_type", choices=("CPU", "GPU"),
                     type=str.upper, help="(default: GPU where there are 2)")
  group.add_argument(
      "--workers", type=int, default=0, metavar="N",
      help="TensorFlow servers of logical CPUs, started on this machine; 0 for "
           "this process alone (default: 0)")
  add_bandwidth(group, several_rates)
  group.add_argument(
      "--cluster", metavar="HOST:PORT,…",
      help="workers that run already, as `tf_cdops worker` does, on any "
           "machines: their addresses, or a cluster as JSON, or the word "
           "TF_CONFIG for the cluster of that variable, all of whose workers "
           "must run. None is started or stopped; let them do nothing else "
           "meanwhile")


def add_bandwidth(parser: "argparse._ActionsContainer",
                  several: bool = False) -> None:
  """Adds --bandwidth, which may be several rates where they are of use."""
  example = ("500mbit; several, such as 100mbit,1gbit, are measured in turn"
             if several else "500mbit")
  parser.add_argument(
      "--bandwidth", metavar="RATE,…" if several else "RATE",
      help="give each of the --workers a network and a cable of its own, of "
           f"this rate, such as {example} (Linux; default: this machine's "
           "loopback)")


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds what says where the demo's model is trained, and how it reduces."""
  parser.add_argument("--devices", type=int, default=_DEFAULT_CPUS,
                      metavar="N", help="logical CPU devices, of each worker "
                      f"(default: {_DEFAULT_CPUS})")
  parser.add_argument("--workers", type=int, default=0, metavar="N",
                      help="worker processes; 0 for none (default: 0)")
  add_bandwidth(parser)
  parser.add_argument("--all_reduce_spec", default="auto", metavar="SPEC",
                      help="how gradients travel (default: auto)")


def check_demo(args: argparse.Namespace) -> None:
  """Raises for what these can't be, before TensorFlow is loaded."""
  for name, least in (("devices", 1), ("workers", 0)):
    errors.check_whole_number(f"--{name}", getattr(args, name), least,
                              _MAX_DEMO_DEVICES)
  check_bandwidth(args)
  planner.parse_all_reduce_spec(args.all_reduce_spec)


def check(args: argparse.Namespace, several_rates: bool = False) -> None:
  """Raises for numbers that can't be, before TensorFlow is loaded."""
  if args.devices is not None:
    errors.check_whole_number("--devices", args.devices, 1, _MAX_DEVICES)
  errors.check_whole_number("--workers", args.workers, 0, _MAX_DEVICES)
  if args.workers and args.device_type == "GPU":
    raise errors.InputError(
        "`--device_type` (GPU) must be CPU with --workers: the workers share "
        "this machine, and their devices are logical CPUs.")
  check_bandwidth(args, several_rates)
  if (args.devices or 1) * args.workers > _MAX_DEVICES:
    raise errors.InputError(
        f"`--workers` ({args.workers}) with `--devices` ({args.devices}) must "
        f"be at most {_MAX_DEVICES} devices in all.")
  if args.cluster is not None:
    _check_cluster(args)


def _check_cluster(args: argparse.Namespace) -> None:
  """Raises for what --cluster can't be; puts TF_CONFIG's text in its place."""
  if args.workers:
    raise errors.InputError(
        f"`--workers` ({args.workers}) must be left out with --cluster: it "
        "starts workers, and those of the cluster run already; give one.")
  if not args.cluster:
    raise errors.InputError(
        "`--cluster` ('') must be addresses, such as host1:2222,host2:2222, or "
        f"{_TF_CONFIG} for the cluster of that variable.")
  if args.cluster.upper() == _TF_CONFIG:
    args.cluster = os.environ.get(_TF_CONFIG, "")
    if not args.cluster:
      raise errors.InputError(
          f"`--cluster` ({_TF_CONFIG}) must have that variable, which isn't "
          "set; set it, or give addresses: --cluster=host1:2222,host2:2222.")


def check_bandwidth(args: argparse.Namespace, several: bool = False) -> None:
  """Raises for a rate that isn't one, that nobody has, or that can't be had."""
  if args.bandwidth is None:
    return
  if len(bandwidths(args)) > 1 and not several:
    raise errors.InputError(
        f"`--bandwidth` ({args.bandwidth}) must be one rate; give one. Only "
        "`bench` takes several.")
  if not args.workers:
    raise errors.InputError(
        f"`--bandwidth` ({args.bandwidth}) must come with --workers, whose "
        "cables it is for; give --workers=4, say, or leave it out.")
  cables.check_programs()


def bandwidths(args: argparse.Namespace) -> list[str]:
  """Returns the rates that --bandwidth has, the slowest first; or none."""
  if args.bandwidth is None:
    return []
  return rates.split(args.bandwidth, "--bandwidth")


@contextlib.contextmanager
def opened(args: argparse.Namespace) -> Iterator["sites.Site"]:
  """Loads TensorFlow and yields the devices that checked flags ask for.

  Of several rates, their cables have the slowest.
  """
  if args.workers:
    cables.enter_network(shaped=args.bandwidth is not None)
  import tensorflow as tf
  from tf_cdops.cli.measuring import sites
  tf.get_logger().setLevel("ERROR")
  if args.cluster is not None:
    yield sites.running_cluster(args.cluster, args.devices, args.device_type)
    return
  if args.workers:
    with sites.local_cluster(args.workers, args.devices or 1,
                             next(iter(bandwidths(args)), None)) as site:
      yield site
    return
  gpus = tf.config.list_physical_devices("GPU")
  kind = args.device_type or ("GPU" if len(gpus) > 1 else "CPU")
  if kind == "GPU" and len(gpus) < (args.devices or 1):
    raise errors.InputError(
        f"`--device_type` (GPU) needs {args.devices or 1} of them, and "
        f"TensorFlow finds {len(gpus)}; use --device_type=CPU, or fewer "
        "--devices.")
  if kind == "CPU":
    sites.configure_cpus(args.devices or _DEFAULT_CPUS)
  yield sites.local(kind, args.devices)
