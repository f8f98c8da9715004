"""Measures several contenders on one load."""

import itertools
from collections.abc import Callable

from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import limits
from tf_cdops.cli.measuring import results
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing

_WARM_UP = 2  # The first runs allocate what the later ones use.
_LIMIT_SECONDS = 600.0


class Comparison:
  """Steps on the same inputs; can be asked for its results at any time.

      comparison = Comparison(inputs)
      for contender in contenders.of_tensorflow():
        comparison.add(steps.build(contender, inputs))
      comparison.run(rounds=20)
      comparison.results()
  """

  def __init__(self, inputs: exact_inputs.Inputs):
    self._inputs = inputs
    self._steps: dict[str, steps.Step] = {}
    self._wrong: dict[str, int] = {}
    self._seconds: dict[str, list[float]] = {}

  def add(self, step: steps.Step) -> None:
    """Adds a step, having compared its every result with the exact sum."""
    with limits.limit(_LIMIT_SECONDS, f"checking {step.name!r}"):
      self._wrong[step.name] = steps.count_wrong(step, self._inputs)
    self._steps[step.name] = step
    self._seconds[step.name] = []

  def run(self, rounds: int,
          after_each: Callable[[], object] = lambda: None) -> None:
    """Runs every step once a round, and remembers how long each took."""
    timed = timing.rounds({name: step.run
                           for name, step in self._steps.items()})
    for number in itertools.count(1):
      with limits.limit(_LIMIT_SECONDS, "a round of steps"):
        seconds = next(timed)
      if number <= _WARM_UP:
        continue
      for name, one in seconds.items():
        self._seconds[name].append(one)
      after_each()
      if number == _WARM_UP + rounds:
        return

  def results(self) -> list[results.Result]:
    """Returns what there is so far."""
    return [results.make_result(step, self._inputs,
                       timing.Summary.from_samples(self._seconds[name]),
                       self._wrong[name])
            for name, step in self._steps.items() if self._seconds[name]]
