"""Adds a trace up: what a step's time went to, and whom it waited for."""

import collections
import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tf_cdops.explaining.timeline import intervals
from tf_cdops.explaining.timeline import step_times
from tf_cdops.explaining.timeline import trace as trace_lib


@dataclasses.dataclass(frozen=True)
class Late:
  """The replica that the others waited for: it is late, or has more to do.

  One that has more to do can have others wait for it before they compute, and
  all are late then.

  Attributes:
    replica: its number.
    device: where it is.
    by: how much later than the middle one of the others it had its gradients.
    waiting: how much later than the first.
    steps: in how many of the steps it was the last.
    extra: how much more it had to do till then than the middle one of the
      others.
    neighbours: how many replicas' logical CPUs share its worker's cores.
  """

  replica: int
  device: str
  by: float
  waiting: float
  steps: int
  extra: float = 0.0
  neighbours: int = 0

  @property
  def takes_turns(self) -> bool:
    """Whether it is late for want of cores, and not by what it does."""
    return bool(self.neighbours) and self.extra < self.by / 2

  @property
  def cost(self) -> float:
    """What it costs the others, at the most."""
    return max(self.by, self.extra)


@dataclasses.dataclass(frozen=True)
class BucketTimes:
  """What a bucket took in a step.

  Attributes:
    bucket: which.
    seconds: in which any of it was under way; a collective op is from when
      its device has come to it, so it waits for the last one, too.
    exposed: those of them in which nothing was computed.
  """

  bucket: trace_lib.Bucket
  seconds: float
  exposed: float

  @property
  def by_prediction(self) -> float | None:
    """How many times as long as predicted it took."""
    return (self.seconds / self.bucket.predicted if self.bucket.predicted
            else None)


class LaneTimes(NamedTuple):
  """What a device, or a link, did in a step."""

  name: str
  busy: float
  waiting: float


@dataclasses.dataclass(frozen=True)
class Summary:
  """The figures of a step, each the median over the steps, in seconds.

  Of an even number of steps, the lower one of those in the middle.

  Attributes:
    num_steps: of how many steps.
    step: how long it took.
    computing: in which something was computed somewhere.
    communication: in which anything of a bucket was under way.
    exposed: those of them in which nothing was computed.
    backward: from a replica's first gradient to its last; None if there are no
      two buckets.
    late: the last replica; None if there aren't several.
    buckets: what was all-reduced.
    lanes: devices, then links between workers, in the step whose length is
      the median.
    num_bytes: of all buckets, on one replica.
  """

  num_steps: int
  step: float
  computing: float
  communication: float
  exposed: float
  backward: float | None
  late: Late | None
  buckets: tuple[BucketTimes, ...]
  lanes: tuple[LaneTimes, ...]
  num_bytes: int

  @property
  def worst(self) -> BucketTimes | None:
    """The bucket that hid worst."""
    return max(self.buckets, key=lambda one: one.exposed, default=None)


def summarize(trace: trace_lib.Trace) -> Summary:
  """Returns the figures of a trace that has a step at least."""
  steps = [step_times.StepTimes(trace, step) for step in trace.steps]
  backward = [one for step in steps for one in step.backwards()]

  def median(get: Callable[[step_times.StepTimes], float]) -> float:
    return statistics.median_low(map(get, steps))

  buckets = []
  for i, bucket in enumerate(trace.buckets):
    found = [step.of_bucket(i) for step in steps]
    if any(found):
      buckets.append(BucketTimes(
          bucket, statistics.median_low(map(intervals.length, found)),
          statistics.median_low(step.exposed(one) for step, one
                                in zip(steps, found, strict=True))))
  return Summary(
      len(steps), median(lambda step: step.step.seconds),
      median(lambda step: intervals.length(step.computing)),
      median(lambda step: intervals.length(step.communication)),
      median(lambda step: step.exposed(step.communication)),
      statistics.median(backward) if backward else None,
      _last_replica(trace, steps), tuple(buckets),
      _lanes(trace, next(one for one in steps if one.step.seconds == median(
          lambda step: step.step.seconds))),
      sum(times.bucket.num_bytes or 0 for times in buckets))


def links(trace: trace_lib.Trace) -> dict[tuple[str, str],
                                          list[trace_lib.Transfer]]:
  """Returns what went between each two workers."""
  found = collections.defaultdict(list)
  for transfer in trace.transfers:
    ends = (trace_lib.worker_of(transfer.source),
            trace_lib.worker_of(transfer.destination))
    if ends[0] != ends[1]:
      found[ends].append(transfer)
  return dict(sorted(found.items()))


def link_name(ends: tuple[str, str]) -> str:
  """Returns what people call a link."""
  return " → ".join(map(trace_lib.short_worker, ends))


def _last_replica(trace: trace_lib.Trace,
                  steps: list[step_times.StepTimes]) -> Late | None:
  devices = trace.devices[:trace.replicas]
  rows = []  # When each replica had its gradients, and what it did till then.
  for step in steps:
    ends = [step.gradients_end(device) for device in devices]
    known = [end for end in ends if end is not None]
    if len(known) == len(devices):
      rows.append((known, [
          intervals.length(intervals.within(step.busy(device),
                                            step.step.start, end))
          for device, end in zip(devices, known, strict=True)]))
  if len(devices) < 2 or not rows:
    return None

  def beyond_others(rank: int, part: int) -> float:
    return statistics.median(
        row[part][rank] - statistics.median(
            [*row[part][:rank], *row[part][rank + 1:]]) for row in rows)

  last = max(range(len(devices)), key=lambda rank: (
      beyond_others(rank, 0) + beyond_others(rank, 1)))
  return Late(
      last, devices[last], beyond_others(last, 0),
      statistics.median(ends[last] - min(ends) for ends, _ in rows),
      sum(ends[last] == max(ends) for ends, _ in rows),
      beyond_others(last, 1), _neighbours(devices, devices[last]))


def _neighbours(devices: Sequence[str], device: str) -> int:
  """Returns how many other logical CPUs share a device's worker."""
  return sum(one != device and "/device:CPU:" in one
             and trace_lib.worker_of(one) == trace_lib.worker_of(device)
             for one in devices)


def _lanes(trace: trace_lib.Trace,
           step: step_times.StepTimes) -> tuple[LaneTimes, ...]:
  lanes = [(trace.name_of(device), step.busy(device))
           for device in trace.devices]
  lanes += [(link_name(ends), step.carried(ends)) for ends in links(trace)]
  whole = [(step.step.start, step.step.end)]
  return tuple(LaneTimes(name, intervals.length(busy),
                         intervals.length(intervals.minus(whole, busy)))
               for name, busy in lanes)
