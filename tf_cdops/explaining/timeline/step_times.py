"""When what went on, in one step of a trace."""

import re
from collections.abc import Iterable

from tf_cdops.explaining.timeline import intervals
from tf_cdops.explaining.timeline import trace as trace_lib

# The scopes in which tf.GradientTape and tf.gradients put what they emit.
_GRADIENT = re.compile(r"(?:^|/)(?:gradient_tape|gradients)(?:_\d+)?/")


class StepTimes:
  """The intervals of one step."""

  def __init__(self, trace: trace_lib.Trace, step: trace_lib.Step):
    self.step, self._trace = step, trace
    self.spans = [span for span in trace.spans
                  if span.end > step.start and span.start < step.end]
    self.transfers = [one for one in trace.transfers
                      if one.end > step.start and one.start < step.end]
    self.computing = self._cut(span for span in self.spans
                               if span.kind == trace_lib.COMPUTING
                               and not span.in_flight)
    self._buckets = {i: self._cut(trace.of_bucket(i))
                     for i in range(len(trace.buckets))}
    self.communication = intervals.union(
        one for found in self._buckets.values() for one in found)

  def _cut(self, given: Iterable[trace_lib.Span | trace_lib.Transfer]
           ) -> intervals.Intervals:
    return intervals.within(((one.start, one.end) for one in given),
                            self.step.start, self.step.end)

  def of_bucket(self, bucket: int) -> intervals.Intervals:
    return self._buckets[bucket]

  def exposed(self, given: intervals.Intervals) -> float:
    return intervals.length(intervals.minus(given, self.computing))

  def busy(self, device: str) -> intervals.Intervals:
    """Returns when a device had something to do."""
    return self._cut(span for span in self.spans
                     if span.device == device and not span.in_flight)

  def carried(self, ends: tuple[str, str]) -> intervals.Intervals:
    """Returns when something was under way over a link."""
    return self._cut(one for one in self.transfers if ends == (
        trace_lib.worker_of(one.source), trace_lib.worker_of(one.destination)))

  def arrivals(self, device: str) -> dict[int, float]:
    """Returns when a device first had a gradient for each bucket."""
    found: dict[int, float] = {}
    for span in self.spans:
      if span.device == device and span.bucket is not None:
        found[span.bucket] = min(found.get(span.bucket, span.start),
                                 span.start)
    return found

  def backwards(self) -> list[float]:
    """Returns how long it took each replica from first to last gradient."""
    found = []
    for device in self._trace.devices[:self._trace.replicas]:
      times = sorted(self.arrivals(device).values())
      if len(times) > 1:
        found.append(times[-1] - times[0])
    return found

  def gradients_end(self, device: str) -> float | None:
    """Returns when a device has all its gradients.

    A bucket's first op doesn't tell it of a device that sums what others send:
    that is what it waits for.
    """
    ends = [span.end for span in self.spans if span.device == device
            and span.kind == trace_lib.COMPUTING
            and _GRADIENT.search(span.name)]
    if ends:
      return max(ends)
    return max(self.arrivals(device).values(), default=None)
