"""Writes a trace in Chrome's format, which Perfetto opens.

The format: github.com/google/perfetto, docs/getting-started/other-formats.md.
Spans of one lane must lie side by side or within each other; so what a device
does at the same time goes to further lanes of it.
"""

from collections.abc import Iterable
from typing import Any

from tf_cdops.explaining.timeline import intervals
from tf_cdops.explaining.timeline import summary
from tf_cdops.explaining.timeline import trace as trace_lib
from tf_cdops.explaining.timeline import wording

WAITING = "waiting"
NOTHING: dict[str, Any] = {"traceEvents": []}  # A file, all the same.
_STEPS, _BUCKETS, _LINKS, _FIRST_WORKER = 1, 2, 3, 10
# Names of Chrome's own colours.
_COLOURS = {trace_lib.COMPUTING: "thread_state_running",
            trace_lib.COMMUNICATION: "thread_state_iowait",
            trace_lib.OTHER: "thread_state_runnable"}


def events(trace: trace_lib.Trace) -> dict[str, Any]:
  """Returns the file's content."""
  written = _Written()
  written.process(_STEPS, "steps")
  written.lane(_STEPS, 0, "step")
  for step in trace.steps:
    written.span(_STEPS, 0, f"step {step.number}", "step", step.start,
                 step.end)
  _write_buckets(written, trace)
  _write_links(written, trace)
  workers = list(dict.fromkeys(map(trace_lib.worker_of, trace.devices)))
  for pid, worker in enumerate(workers, _FIRST_WORKER):
    written.process(pid, trace_lib.short_worker(worker) if len(workers) > 1
                    else "devices")
    tid = 0
    for device in trace.devices:
      if trace_lib.worker_of(device) == worker:
        tid = _write_device(written, trace, device, pid, tid)
  return {"displayTimeUnit": "ms", "traceEvents": written.events,
          "otherData": {"writer": "tf_cdops", "clocks": "; ".join(
              map(wording.describe_clock, trace.clocks))}}


class _Written:
  """The events so far."""

  def __init__(self) -> None:
    self.events: list[dict[str, Any]] = []

  def process(self, pid: int, name: str) -> None:
    self._named("process_name", pid, 0, name)
    self.events.append({"ph": "M", "pid": pid, "tid": 0, "ts": 0,
                        "name": "process_sort_index",
                        "args": {"sort_index": pid}})

  def lane(self, pid: int, tid: int, name: str) -> None:
    self._named("thread_name", pid, tid, name)
    self.events.append({"ph": "M", "pid": pid, "tid": tid, "ts": 0,
                        "name": "thread_sort_index",
                        "args": {"sort_index": tid}})

  def _named(self, what: str, pid: int, tid: int, name: str) -> None:
    self.events.append({"ph": "M", "pid": pid, "tid": tid, "ts": 0,
                        "name": what, "args": {"name": name}})

  def span(self, pid: int, tid: int, name: str, category: str, start: float,
           end: float, **args: Any) -> None:
    event = {"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": category,
             "ts": _micros(start), "dur": _micros(end - start), "args": args}
    if category in _COLOURS:
      event["cname"] = _COLOURS[category]
    self.events.append(event)


def _write_buckets(written: _Written, trace: trace_lib.Trace) -> None:
  """Each bucket's span of each step, from its first op to its last."""
  written.process(_BUCKETS, "buckets")
  for i, bucket in enumerate(trace.buckets):
    written.lane(_BUCKETS, i, bucket.label)
    for step in trace.steps:
      # Programs may be in the next step already; its bucket is another span.
      found = intervals.within(
          ((one.start, one.end) for one in trace.of_bucket(i)), step.start,
          step.end)
      if found:
        args = {"bucket": bucket.number, "algorithm": bucket.algorithm,
                "bytes": bucket.num_bytes, "variables": list(bucket.tensors),
                "predicted_ms": bucket.predicted and bucket.predicted * 1e3}
        written.span(_BUCKETS, i, wording.describe_bucket(bucket), "bucket",
                     found[0][0], found[-1][1], **args)


def _write_links(written: _Written, trace: trace_lib.Trace) -> None:
  links = summary.links(trace)
  if not links:
    return
  written.process(_LINKS, "links")
  tid = 0
  for ends, transfers in links.items():
    for row, some in enumerate(_rows(transfers)):
      written.lane(_LINKS, tid, summary.link_name(ends)
                   + f" ({row + 1})" * (row > 0))
      for one in some:
        written.span(_LINKS, tid, _label(trace, one.bucket, one.name),
                     trace_lib.OTHER if one.bucket is None
                     else trace_lib.COMMUNICATION, one.start, one.end,
                     op=one.name)
      tid += 1


def _write_device(written: _Written, trace: trace_lib.Trace, device: str,
                  pid: int, tid: int) -> int:
  """Writes a device's lanes; returns the number of the next one."""
  spans = [span for span in trace.spans
           if span.device == device and not span.in_flight]
  name = trace_lib.short_name(device).rpartition(" ")[2]
  if device in trace.devices[:trace.replicas]:
    name += f", replica {trace.devices.index(device)}"
  busy = intervals.union((span.start, span.end) for span in spans)
  written.lane(pid, tid, name)
  for step in trace.steps:
    for start, end in intervals.minus([(step.start, step.end)], busy):
      written.span(pid, tid, WAITING, WAITING, start, end)
  rows = _rows(spans)
  for row, some in enumerate(rows):
    if row:
      written.lane(pid, tid + row, f"{name} ({row + 1})")
    for span in some:
      written.span(pid, tid + row, _label(trace, span.bucket, span.op),
                   span.kind, span.start, span.end, op=span.name)
  return tid + max(1, len(rows))


def _label(trace: trace_lib.Trace, bucket: int | None, name: str) -> str:
  if bucket is None:
    return name
  return f"{trace.buckets[bucket].label}: {name.rpartition('/')[2]}"


def _rows(given: Iterable[Any]) -> list[list[Any]]:
  """Divides what overlaps among rows, in which it doesn't."""
  rows: list[list[Any]] = []
  for one in sorted(given, key=lambda one: (one.start, one.end)):
    row = next((row for row in rows if row[-1].end <= one.start), None)
    if row is None:
      rows.append([one])
    else:
      row.append(one)
  return rows


def _micros(seconds: float) -> float:
  return round(seconds * 1e6, 3)

