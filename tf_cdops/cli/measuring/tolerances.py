"""How far results may be from exact sums, where a wire rounds messages."""

import dataclasses

import numpy as np

from tf_cdops import cost
from tf_cdops.base import topology as topology_lib
from tf_cdops.explaining import parts
from tf_cdops.explaining import wire_wording
from tf_cdops.planning import planner

_OF_FLOAT32 = 1e-6  # What sums round without a wire, too.


@dataclasses.dataclass(frozen=True)
class Tolerance:
  """A wire's bound.

  Attributes:
    bound: the most that results are off, as a part of `unit_of`.
    unit_of: of what: see `registry.WireCodec`.
    has_feedback: whether what the step before lost is in a result, too.
    floor: what is lost beside, at most.
  """

  bound: float
  unit_of: str
  has_feedback: bool
  floor: float

  def holds(self, actual: np.ndarray, expected: np.ndarray,
            largest_sum: float) -> np.ndarray:
    """Returns, for each element, whether it is within the bound.

    Args:
      actual: the results.
      expected: the exact sums, of numbers that are all positive.
      largest_sum: the most that there may be of what the bound is a part of,
        where that isn't the numbers' own magnitudes.
    """
    bound = (1 + self.has_feedback) * self.bound + _OF_FLOAT32
    of = expected if self.unit_of == "magnitudes" else largest_sum
    error = np.abs(actual.astype("float64") - expected)
    return np.asarray(error <= bound * of + self.floor)

  def __str__(self) -> str:
    again = ", and as much again of the step before" * self.has_feedback
    return (f"within {wire_wording.percent(self.bound)} of the sum of "
            f"{self.unit_of}{again}")


def of_plan(plan: planner.Plan,
            topology: topology_lib.Topology) -> Tolerance | None:
  """Returns the tolerance of a plan; None if it has no wire."""
  wired = [bucket for bucket in plan.buckets if bucket.wired]
  if plan.wire is None or not wired:
    return None
  costs = parts.PlanCosts(cost.Model(topology), ())
  # Where nobody has counted: no more than once on each device.
  most = len(topology.devices) + 1
  roundings = max(costs.roundings(plan.algorithm(bucket)) or most
                  for bucket in {(b.algorithm, b.shards): b
                                 for b in wired}.values())
  codec = plan.wire.codec
  return Tolerance(codec.bound(roundings), codec.unit_of, codec.has_feedback,
                   codec.floor(roundings, len(topology.devices)))
