"""Runs one choice against another, in pairs of steps, on a whole load."""

import dataclasses
import itertools
import time

from tf_cdops import registry
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import limits
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing
from tf_cdops.cli.measuring import tuning
from tf_cdops.cost import given
from tf_cdops.execution import executor
from tf_cdops.planning import planner

_LEAST_PAIRS, _MAX_PAIRS = 6, 100  # Fewer can't prove anything.
_LIMIT_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class Race:
  """One choice against another, on the whole load.

  Attributes:
    verdict: whether it is the better one.
    auto: the times of the other, which is "auto" but for wires.
    composed: its times.
    wrong: how many of its elements weren't as they should be.
  """

  verdict: tuning.Verdict
  auto: timing.Summary
  composed: timing.Summary
  wrong: int


@dataclasses.dataclass(frozen=True)
class WireTrial:
  """What became of a wire, with which "auto" ran against the best without.

  Attributes:
    wire: which.
    race: None if it didn't run: there was nothing to encode, or the links say
      that it doesn't pay.
  """

  wire: registry.Wire
  race: Race | None

  @property
  def pays(self) -> bool:
    return (self.race is not None and self.race.verdict.better
            and not self.race.wrong)


def plan(choice: tuning.Setting, inputs: exact_inputs.Inputs,
          network: given.Given | None) -> planner.Plan:
  """Returns how the load travels by a choice."""
  return executor.checked_plan(inputs.sizes, inputs.site.topology, choice.spec,
                               choice.packing, network, choice.wire)


def race(rival: tuning.Setting, choice: tuning.Setting,
          inputs: exact_inputs.Inputs, network: given.Given | None,
          end: float) -> Race:
  """Runs a choice and its rival in pairs until the time is up."""
  with limits.limit(_LIMIT_SECONDS, "building the final comparison"):
    auto, other = (
        steps.build(contenders.of_spec(one.spec, one.packing, link=network,
                                       wire=one.wire), inputs)
        for one in (rival, choice))
  seconds: dict[str, list[float]] = {"auto": [], "composed": []}
  timed = timing.rounds({"auto": auto.run, "composed": other.run})
  next(timed)  # To warm up.
  for pair in itertools.count(1):
    with limits.limit(_LIMIT_SECONDS, "a pair of steps"):
      for name, one in next(timed).items():
        seconds[name].append(one)
    if pair == _MAX_PAIRS or (pair >= _LEAST_PAIRS
                              and time.monotonic() > end):
      break
  verdict = tuning.judge(seconds["auto"], seconds["composed"])
  wrong = 0
  if verdict.better:  # What is recommended must be right as well.
    with limits.limit(_LIMIT_SECONDS, "checking the sums"):
      wrong = steps.count_wrong(other, inputs)
  return Race(verdict, timing.Summary.from_samples(seconds["auto"]),
              timing.Summary.from_samples(seconds["composed"]), wrong)
