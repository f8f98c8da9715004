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

from tf_cdops.measuring import contenders
from tf_cdops.measuring import exact_inputs
from tf_cdops.measuring import sites
from tf_cdops.measuring import steps

_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Memory:
  """What one contender took, in bytes.

  Attributes:
    contender: its name.
    load: a name of `workloads`.
    devices: how many replicas.
    num_bytes: the load's, on one replica.
    inputs: resident with all replicas' inputs, and TensorFlow, alone.
    extra: at the peak of building and running the steps, beyond that.
    kept: still resident afterwards, beyond the inputs: mostly the graph.
  """

  contender: str
  load: str
  devices: int
  num_bytes: int
  inputs: int
  extra: int
  kept: int


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
  _reset_peak()
  step = steps.build(chosen, inputs)
  for _ in range(_STEPS):
    step.run()
  peak = _status("VmHWM")
  return dataclasses.asdict(Memory(
      contender, load, devices, inputs.num_bytes, before, peak - before,
      _resident() - before))


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
