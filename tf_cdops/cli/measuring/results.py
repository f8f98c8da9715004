"""What was measured, in the columns of nccl-tests."""

import dataclasses
from typing import Any

from tf_cdops.base import rates
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing


@dataclasses.dataclass(frozen=True)
class Result:
  """One contender on one load.

  Attributes:
    contender: its name.
    ours: whether it is this package's.
    num_bytes: what each replica holds.
    num_elements: the same, counted in elements.
    dtype: the tensors' type; "mixed" if they have several.
    tensors: how many.
    replicas: how many devices take part.
    time: the seconds of a step.
    wrong: how many elements weren't the exact sum, over all devices.
    build_seconds: what building the graph took.
    nodes: how many nodes it got.
    bandwidth: the rate of each worker's cable, if it has one of its own.
    bits_per_second: the same as a number.
    least_seconds: what no all-reduce can beat with such cables.
    tolerance: what elements must be to be right, if not the exact sum.
  """

  contender: str
  ours: bool
  num_bytes: int
  num_elements: int
  dtype: str
  tensors: int
  replicas: int
  time: timing.Summary
  wrong: int
  build_seconds: float
  nodes: int
  bandwidth: str | None = None
  bits_per_second: float | None = None
  least_seconds: float | None = None
  tolerance: str | None = None

  @property
  def algbw(self) -> float:
    """Algorithm bandwidth: bytes reduced a second."""
    return self.num_bytes / self.time.median

  @property
  def busbw(self) -> float:
    """Bus bandwidth: what each device's link must carry at that rate.

    An all-reduce among p devices sends at least 2(p-1)/p of the bytes over
    each, so this figure can be held against the hardware whatever p is.
    """
    return self.algbw * 2 * (self.replicas - 1) / self.replicas

  def to_dict(self) -> dict[str, Any]:
    """Returns the fields, and the bandwidths in bytes a second."""
    return dataclasses.asdict(self) | {"algbw": self.algbw,
                                       "busbw": self.busbw}


def make_result(step: steps.Step, inputs: exact_inputs.Inputs,
                time: timing.Summary, wrong: int) -> Result:
  dtypes = {size.dtype for size in inputs.sizes}
  site = inputs.site
  return Result(
      step.name, step.ours, inputs.num_bytes, inputs.num_elements,
      dtypes.pop() if len(dtypes) == 1 else "mixed", len(inputs.sizes),
      len(site.devices), time, wrong, step.build_seconds, step.nodes,
      site.bandwidth, 8 * rates.parse(site.bandwidth, "bandwidth")
      if site.bandwidth else None,
      site.least_seconds(inputs.num_bytes),
      str(step.tolerance) if step.tolerance else None)
