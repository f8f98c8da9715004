"""Says what one all-reduce step spends its time on, by type of op.

    python benchmarks/profile_step.py [--devices=8] [--load=resnet]

The step is the suite's own, seen by TensorFlow's profiler. Ops run side by
side, so their times together may be more than the step's, up to as many times
as there are cores; and a step takes longer when it is watched.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import collections
import dataclasses
import json
import pathlib
import re
import statistics
import sys
import tempfile

# A script finds modules in its own folder; these are its parent's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import workloads
import tensorflow as tf
# The form of the profiler's files; the public reader is a web page.
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tf_cdops.cli import output
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import limits
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing

_STEPS = 10
_LIMIT_SECONDS = 300.0
# What the profiler calls a kernel's run: "name:Type".
_KERNEL = re.compile(r"[^:\s]+:(\w+)")


@dataclasses.dataclass(frozen=True)
class Share:
  """What ops of one type took in a step: how many ran, and seconds."""

  op: str
  count: float
  seconds: float


@dataclasses.dataclass(frozen=True)
class Profile:
  """A step's ops, and its median time, watched and not."""

  shares: tuple[Share, ...]
  watched: float
  unwatched: float


def main() -> None:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--devices", type=int, default=8, metavar="N")
  parser.add_argument("--load", default="resnet",
                      choices=("resnet", "small", "big", "bert"))
  parser.add_argument("--spec", default="auto")
  parser.add_argument("--json", action="store_true",
                      help="print the figures as JSON, times in seconds")
  args = parser.parse_args()
  sites.configure_cpus(args.devices)
  inputs = exact_inputs.make(sites.local("CPU", args.devices),
                             workloads.named(args.load).sizes)
  with limits.limit(_LIMIT_SECONDS, "profiling"):
    found = profile(steps.build(contenders.of_spec(args.spec), inputs))
  if args.json:
    print(json.dumps(dataclasses.asdict(found)))
    return
  busy = sum(share.seconds for share in found.shares)
  print(f"A step takes {found.unwatched * 1e3:.1f} ms; watched, "
        f"{found.watched * 1e3:.1f} ms, with {busy / found.watched:.2f} ops "
        "running at a time.")
  output.table(
      f"{args.spec}, {args.load}, {args.devices} devices: one step",
      ("op", ">ran", ">ms", ">of all ops", ">of the step"),
      [(share.op, f"{share.count:g}", f"{share.seconds * 1e3:.2f}",
        f"{share.seconds / busy:.1%}", f"{share.seconds / found.watched:.1%}")
       for share in found.shares])


def profile(step: steps.Step) -> Profile:
  """Runs a step many times, and as many times under the profiler."""
  step.run()
  unwatched = _median(step)
  with tempfile.TemporaryDirectory() as folder:
    tf.profiler.experimental.start(folder)
    watched = _median(step)
    tf.profiler.experimental.stop()
    file, = pathlib.Path(folder).rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
  return Profile(_shares(space), watched, unwatched)


def _median(step: steps.Step) -> float:
  return statistics.median(timing.seconds_of(step.run) for _ in range(_STEPS))


def _shares(space: xplane_pb2.XSpace) -> tuple[Share, ...]:
  """Adds up kernels by type, the longest first."""
  seconds: dict[str, list[float]] = collections.defaultdict(list)
  for plane in space.planes:
    for line in plane.lines:
      for event in line.events:
        name = plane.event_metadata[event.metadata_id].name
        kernel = _KERNEL.fullmatch(name)
        if kernel:
          seconds[kernel[1]].append(event.duration_ps / 1e12)
  shares = [Share(op, len(each) / _STEPS, sum(each) / _STEPS)
            for op, each in seconds.items()]
  return tuple(sorted(shares, key=lambda share: -share.seconds))


if __name__ == "__main__":
  main()
