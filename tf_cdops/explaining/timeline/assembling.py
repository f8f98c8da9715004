"""Makes one trace of what all hosts did."""

import collections
import re
from collections.abc import Iterable, Sequence

from tf_cdops.explaining.timeline import reading as reading_lib
from tf_cdops.explaining.timeline import trace as trace_lib

# What `execution.emitted` names the ops of a bucket, wherever it was inlined.
_BUCKET = re.compile(r"(?:^|/)tf_cdops(?:_\d+)?(?=/bucket_(\d+)/([^/]+))")
# What partitioning calls the two ends of an edge: the next numbers.
_EDGE = re.compile(r"(.*)/_(\d+)")


def assemble(readings: Sequence[reading_lib.Reading],
             known: Iterable[trace_lib.Bucket], replicas: Sequence[str],
             most_steps: int, clocks: Sequence[trace_lib.Clock] = (),
             savings: Sequence[trace_lib.Saving] = ()) -> trace_lib.Trace:
  """Returns the trace; its times are counted from what comes first.

  Args:
    readings: of each host, their clocks aligned. The first is that of who
      called the functions, or of a program.
    known: buckets; those of which nothing is known are added.
    replicas: their devices.
    most_steps: how many steps are kept.
    clocks: how they were aligned.
    savings: what might be changed.
  """
  windows = _windows(readings)[:most_steps]
  buckets = _Buckets(known)
  kernels = [kernel for reading in readings
             for kernel in _in_steps(reading, readings[0], windows)]
  origin = min([*(one.start for one in windows),
                *(one.start for one in kernels)], default=0.0)
  spans = [_span(kernel, buckets, origin) for kernel in kernels
           if kernel.op != reading_lib.RECEIVE]
  transfers = _transfers(kernels, buckets, origin)
  if len(set(map(trace_lib.worker_of, replicas))) > 1:
    transfers += [trace_lib.Transfer(span.name, span.device, "", span.start,
                                     span.end, span.bucket)
                  for span in spans if span.bucket is not None
                  and span.in_flight]
  seen = {span.device for span in spans} - set(replicas)
  return trace_lib.Trace(
      tuple(trace_lib.Step(number, start - origin, end - origin)
            for number, start, end in windows),
      (*replicas, *sorted(seen)), len(replicas), tuple(spans),
      tuple(transfers), tuple(buckets.all), tuple(clocks), tuple(savings))


def has_all_reduce(kernel: reading_lib.Kernel) -> bool:
  """Whether it is of a bucket, or sends what one needs."""
  return bool(_BUCKET.search(kernel.name) or _BUCKET.search(kernel.to))


def _windows(readings: Sequence[reading_lib.Reading]
             ) -> list[reading_lib.Mark]:
  """Returns the steps that all hosts saw as a whole, by the first one's clock.

  Programs, one a worker, all mark their steps: a step is from the first one's
  begin to the last one's end, but no two overlap. Where none were marked, each
  run with an all-reduce is a step, from the end of the run before it.
  """
  marked = [reading for reading in readings if reading.marks]
  found: list[reading_lib.Mark] = []
  for number in [one.number for one in readings[0].marks]:
    marks = [one for reading in marked for one in reading.marks
             if one.number == number]
    if len(marks) == len(marked):
      _append(found, number, min(one.start for one in marks),
              max(one.end for one in marks))
  if not marked:
    for number, (start, end) in enumerate(sorted(_calls(readings).values())):
      _append(found, number, found[-1].end if found else start, end)
  others = [reading for reading in readings if not reading.marks]
  return [one for one in found if all(
      other.start <= one.start and one.end <= other.end for other in others)]


def _append(found: list[reading_lib.Mark], number: int, start: float,
            end: float) -> None:
  """Adds a step that doesn't begin before the end of the last one."""
  start = max(start, found[-1].end) if found else start
  if end > start:
    found.append(reading_lib.Mark(number, start, end))


def _calls(readings: Sequence[reading_lib.Reading]
           ) -> dict[int, tuple[float, float]]:
  """Returns from when to when runs with an all-reduce were called."""
  extents: dict[int, tuple[float, float]] = {}
  for reading in readings:
    for kernel in reading.kernels:
      if has_all_reduce(kernel):
        start, end = extents.get(kernel.run, (kernel.start, kernel.end))
        extents[kernel.run] = (min(start, kernel.start),
                               max(end, kernel.end))
  return {run: readings[0].runs.get(run, extent)
          for run, extent in extents.items()}


def _in_steps(reading: reading_lib.Reading, first: reading_lib.Reading,
              windows: Sequence[reading_lib.Mark]
              ) -> list[reading_lib.Kernel]:
  """Returns the kernels of the runs that steps called.

  A program marks the steps itself. A worker runs what the first host called.
  """
  steps = {one.number for one in windows}
  marks = ([one for one in reading.marks if one.number in steps]
           if reading.marks else windows)
  runs = (reading.runs if reading.marks else first.runs) or _calls([reading])
  wanted = {run for run, (start, _) in runs.items()
            if any(one.start <= start < one.end for one in marks)}
  return [kernel for kernel in reading.kernels
          if kernel.run in wanted and kernel.device]


class _Buckets:
  """The buckets, found by the names of ops."""

  def __init__(self, known: Iterable[trace_lib.Bucket]):
    self.all = list(known)
    self._found: dict[tuple[str, int], int] = {}

  def of(self, *names: str) -> int | None:
    """Returns the position of the bucket that the first such name is of."""
    for name in names:
      found = _BUCKET.search(name)
      if found:
        return self._position(name[:found.end()], int(found[1]), found[2])
    return None

  def _position(self, scope: str, number: int, algorithm: str) -> int:
    key = scope, number
    if key not in self._found:
      # The latest batch of that name counts: it was traced last.
      at = [i for i, one in enumerate(self.all) if one.number == number
            and f"/{scope}".endswith(f"/{one.scope}")]
      if not at:
        at = [len(self.all)]
        self.all.append(trace_lib.Bucket(scope, number, algorithm))
      self._found[key] = at[-1]
    return self._found[key]


def _span(kernel: reading_lib.Kernel, buckets: _Buckets,
          origin: float) -> trace_lib.Span:
  bucket = buckets.of(kernel.name, kernel.to)
  kind = trace_lib.COMPUTING
  if bucket is not None:
    kind = trace_lib.COMMUNICATION
  elif kernel.op == reading_lib.SEND or kernel.waits:
    kind = trace_lib.OTHER
  return trace_lib.Span(kernel.name, kernel.op, kernel.device,
                        kernel.start - origin, kernel.end - origin, kind,
                        bucket, kernel.waits)


def _transfers(kernels: Sequence[reading_lib.Kernel], buckets: _Buckets,
               origin: float) -> list[trace_lib.Transfer]:
  """Returns what was sent and arrived, to another device."""
  arrived = collections.defaultdict(list)
  for kernel in kernels:
    edge = _EDGE.fullmatch(kernel.name)
    if kernel.op == reading_lib.RECEIVE and edge:
      arrived[kernel.run, edge[1], int(edge[2]) - 1].append(kernel.end)
  found = []
  for kernel in kernels:
    edge = _EDGE.fullmatch(kernel.name)
    if kernel.op != reading_lib.SEND or not edge:
      continue
    ends = arrived.get((kernel.run, edge[1], int(edge[2])))
    if ends:
      end = max(ends.pop(0), kernel.start)  # Clocks are aligned, not equal.
      found.append(trace_lib.Transfer(
          edge[1], kernel.device, kernel.destination, kernel.start - origin,
          end - origin, buckets.of(edge[1], kernel.to)))
  return found
