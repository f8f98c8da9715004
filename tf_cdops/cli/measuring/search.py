"""Finds the quickest of many candidates within a time, by halving them."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence

from absl import logging
import tensorflow as tf

from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import limits
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing
from tf_cdops.cli.measuring import tuning
from tf_cdops.planning import planner

_PROBES = 3
_FIRST_ROUNDS = 5
_BUILDING = 0.75  # The part of the time in which new ones may still be built.
_LIMIT_SECONDS = 600.0


def search(inputs: exact_inputs.Inputs,
           candidates: Sequence[planner.Choice], seconds: float,
           on_candidate: Callable[[planner.Choice], object]
           ) -> dict[planner.Choice, float]:
  """Returns the median time of each candidate that there was time to try.

  Each is built and probed; those far behind are dropped at once. The others
  run interleaved, and again and again the slower half goes.

  Args:
    inputs: what to all-reduce.
    candidates: the most promising first, since time may run out.
    seconds: to spend; the first candidate is tried in any case.
    on_candidate: called before each is built.
  """
  started = time.monotonic()
  running: dict[planner.Choice, steps.Step] = {}
  last: dict[planner.Choice, list[float]] = {}
  failure: Exception | None = None
  for candidate in candidates:
    if last and time.monotonic() - started > _BUILDING * seconds:
      break
    on_candidate(candidate)
    try:
      with limits.limit(_LIMIT_SECONDS, f"trying {candidate}"):
        step = steps.build(_contender(candidate, len(inputs.sizes)), inputs)
        last[candidate] = [timing.seconds_of(step.run) for _ in range(_PROBES)]
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
      failure = error  # A third party's, or devices that can't do it.
      logging.warning("%s can't run here, and is left out: %s", candidate,
                      error)
      continue
    best = min(min(probes) for probes in last.values())
    if not tuning.hopeless(last[candidate], best):
      running[candidate] = step
  if failure is not None and not last:
    raise failure
  count = _FIRST_ROUNDS
  while len(running) > 1 and time.monotonic() - started < seconds:
    last |= _rounds(running, count, started + seconds)
    kept = tuning.survivors({c: last[c] for c in running})
    if len(kept) == len(running):
      break
    running = {c: running[c] for c in kept}
    count *= 2
  return {c: statistics.median(samples) for c, samples in last.items()}


def _rounds(running: dict[planner.Choice, steps.Step], count: int,
            end: float) -> dict[planner.Choice, list[float]]:
  """Times each in turn, at most `count` times, at least once."""
  by_name = {str(candidate): candidate for candidate in running}
  samples: dict[planner.Choice, list[float]] = {c: [] for c in running}
  timed = timing.rounds({name: running[c].run for name, c in by_name.items()})
  for one in itertools.islice(timed, count):
    for name, seconds in one.items():
      samples[by_name[name]].append(seconds)
    if time.monotonic() > end:
      break
  return samples


def _contender(candidate: planner.Choice,
               tensors: int) -> contenders.Contender:
  # More than any tensor has: all of them are packed.
  packing = planner.Packing(small_max_bytes=1 << 40, small_max_group=tensors)
  return contenders.of_spec(
      [(candidate.algorithm, candidate.shards, -1)],
      packing if candidate.pack else None, str(candidate))
