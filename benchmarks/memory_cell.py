"""A process that measures how much memory one contender's steps take.

A process each: what TensorFlow's allocators have once got, they may keep.
"""

import ctypes
import dataclasses
import pathlib
import re
from typing import Any

from benchmarks import serving
from benchmarks import workloads
import tensorflow as tf

from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.execution import executor
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

_STEPS = 5


@dataclasses.dataclass(frozen=True)
class Memory:
  """What one contender took, in bytes.

  Attributes:
    contender: its name.
    load: a name of `workloads`.
    devices: how many replicas.
    num_bytes: the load's, on one replica.
    kept: resident between steps, beyond what it was with inputs alone: the
      graph, and whatever TensorFlow keeps.
    extra: at the peak of a step, beyond that.
    largest: of what travels as one, on one replica; 0 if not known.
  """

  contender: str
  load: str
  devices: int
  num_bytes: int
  kept: int
  extra: int
  largest: int


def names() -> list[str]:
  return [contender.name for contender in _field()]


def measure(contender: str, load: str, devices: int) -> dict[str, Any]:
  """Returns a Memory as a dict; `contender` is one of `names`."""
  tf.get_logger().setLevel("ERROR")
  sites.configure_cpus(devices)
  site = sites.local("CPU", devices)
  chosen, = (one for one in _field() if one.name == contender)
  # What the first use of anything costs isn't a step's.
  tiny = exact_inputs.make(site, workloads.of_count(4).sizes)
  steps.build(chosen, tiny).run()
  inputs = exact_inputs.make(site, workloads.named(load).sizes)
  before = _resident()
  step = steps.build(chosen, inputs)
  step.run()
  extra, kept = 0, 0
  for _ in range(_STEPS):
    resting = _resident()
    _reset_peak()
    step.run()
    kept = max(kept, resting - before)
    extra = max(extra, _status("VmHWM") - resting)
  return dataclasses.asdict(Memory(
      contender, load, devices, inputs.num_bytes, kept, extra,
      _largest_bucket(inputs) if chosen.ours else 0))


def _largest_bucket(inputs: exact_inputs.Inputs) -> int:
  plan = executor.checked_plan(
      inputs.sizes, inputs.site.topology, spec_lib.parse(spec_lib.AUTO),
      planner.Packing())
  return max(bucket.num_bytes or 0 for bucket in plan.buckets)


def _field() -> tuple[contenders.Contender, ...]:
  return (contenders.of_spec("auto"), *contenders.of_tensorflow())


def _resident() -> int:
  """Returns the resident bytes, once the C library has let go of free ones."""
  ctypes.CDLL(None).malloc_trim(0)
  return _status("VmRSS")


def _reset_peak() -> None:
  pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _status(field: str) -> int:
  text = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
  match = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
  assert match, f"Linux has {field}"
  return int(match[1]) * 1024


if __name__ == "__main__":
  serving.serve({"names": lambda: {"names": names()}, "measure": measure})
