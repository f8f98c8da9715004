"""Writes a trace's figures for people."""

import textwrap
from collections.abc import Sequence
from typing import Any

from tf_cdops.explaining import text_table
from tf_cdops.explaining import wording as units
from tf_cdops.explaining.timeline import advice
from tf_cdops.explaining.timeline import summary as summary_lib
from tf_cdops.explaining.timeline import trace as trace_lib

_MOST_BUCKETS = 20
_MOST_NAMES = 3
_seconds, _bytes = units.format_duration, units.format_bytes
BUCKET_COLUMNS = ("bucket", "algorithm", ">tensors", ">bytes", ">measured",
                  ">predicted", ">times", ">exposed", "variables")
LANE_COLUMNS = ("lane", ">busy", ">waiting", ">busy share")


def describe_bucket(bucket: trace_lib.Bucket) -> str:
  """Returns a bucket's algorithm, bytes and variables."""
  size = "" if bucket.num_bytes is None else f", {_bytes(bucket.num_bytes)}"
  names = describe_tensors(bucket)
  return f"{bucket.algorithm}{size}{f': {names}' if names else ''}"


def describe_tensors(bucket: trace_lib.Bucket) -> str:
  """Returns the names of the first few tensors."""
  more = len(bucket.tensors) - _MOST_NAMES
  return ", ".join(bucket.tensors[:_MOST_NAMES]) + (
      f" and {more} more" if more > 0 else "")


def describe_clock(clock: trace_lib.Clock) -> str:
  """Says how a host's clock was aligned."""
  known = ("which nothing confirms" if clock.within is None
           else f"known to within {_seconds(clock.within)}")
  if not clock.moved:
    return f"{clock.host}'s clock was left as it is, {known}"
  where = "ahead" if clock.moved > 0 else "back"
  return f"{clock.host}'s clock was moved {where} by " \
         f"{_seconds(abs(clock.moved))}, {known}"


def figures(summary: summary_lib.Summary) -> list[tuple[str, str, str]]:
  """Returns the main figures: name, value, and what it is."""
  share = lambda part: f"{part / summary.step:.0%} of the step"
  rows = [
      ("step", _seconds(summary.step),
       f"median of {summary.num_steps}, watched"),
      ("computing", _seconds(summary.computing), share(summary.computing)),
      ("communication", _seconds(summary.communication),
       share(summary.communication)),
      ("exposed communication", _seconds(summary.exposed),
       f"{share(summary.exposed)}; nothing was computed meanwhile")]
  late = summary.late
  if late is not None:
    rows.append((
        "waiting for the last replica", _seconds(late.waiting),
        f"replica {late.replica} ({trace_lib.short_name(late.device)}), the "
        f"last in {late.steps} of {summary.num_steps} steps"
        + (f"; {late.neighbours + 1} logical CPUs take turns on this "
           "machine's cores" if late.takes_turns else "")))
  if summary.worst is not None:
    worst = summary.worst
    rows.append(("hid worst", worst.bucket.label,
                 f"{_seconds(worst.exposed)} of {_seconds(worst.seconds)} "
                 "exposed"))
  if summary.backward is not None:
    rows.append(("first to last gradient", _seconds(summary.backward),
                 f"backward_seconds={summary.backward:.3g}"))
  return rows


def bucket_rows(summary: summary_lib.Summary) -> list[list[str]]:
  """Returns the cells of BUCKET_COLUMNS, in the order in which they go."""
  rows = []
  for times in summary.buckets:
    bucket, ratio = times.bucket, times.by_prediction
    rows.append([
        str(bucket.number), bucket.algorithm, str(len(bucket.tensors) or "?"),
        "?" if bucket.num_bytes is None else f"{bucket.num_bytes:,}",
        _seconds(times.seconds),
        "?" if bucket.predicted is None else _seconds(bucket.predicted),
        "?" if ratio is None else f"{ratio:.2g}", _seconds(times.exposed),
        describe_tensors(bucket)])
  return rows


def lane_rows(summary: summary_lib.Summary) -> list[list[str]]:
  """Returns the cells of LANE_COLUMNS."""
  return [[lane.name, _seconds(lane.busy), _seconds(lane.waiting),
           f"{lane.busy / (lane.busy + lane.waiting):.0%}"]
          for lane in summary.lanes]


def report(trace: trace_lib.Trace, summary: summary_lib.Summary,
           width: int = units.WIDTH) -> str:
  """Returns all of it as text, in lines of up to `width` columns."""
  rows = bucket_rows(summary)
  hidden = len(rows) - _MOST_BUCKETS
  sections = [
      text_table.draw(("a step", ">took", ""), figures(summary), width),
      text_table.draw(LANE_COLUMNS, lane_rows(summary), width)]
  if rows:
    sections.append(text_table.draw(
        BUCKET_COLUMNS, rows[:_MOST_BUCKETS], width,
        spare=("variables", ">tensors")) + (
            f"\n… and {hidden} more buckets" if hidden > 0 else ""))
  lines = [*(f"{describe_clock(clock)}." for clock in trace.clocks),
           advice.advise(trace, summary)]
  return "\n\n".join([*sections, *(textwrap.fill(line, width)
                                   for line in lines)])


def to_dict(trace: trace_lib.Trace,
            summary: summary_lib.Summary) -> dict[str, Any]:
  """Returns the figures as dicts, lists, numbers and texts."""
  late = summary.late
  return {
      "steps": summary.num_steps, "step_seconds": summary.step,
      "computing_seconds": summary.computing,
      "communication_seconds": summary.communication,
      "exposed_seconds": summary.exposed,
      "backward_seconds": summary.backward,
      "last_replica": late and {
          "replica": late.replica, "device": late.device,
          "late_by_seconds": late.by, "waiting_seconds": late.waiting,
          "steps": late.steps},
      "buckets": [_bucket_dict(times) for times in summary.buckets],
      "lanes": _dicts(summary.lanes),
      "clocks": [{"host": clock.host, "moved_seconds": clock.moved,
                  "within_seconds": clock.within} for clock in trace.clocks],
      "advice": advice.advise(trace, summary)}


def _bucket_dict(times: summary_lib.BucketTimes) -> dict[str, Any]:
  bucket = times.bucket
  return {"scope": bucket.scope, "bucket": bucket.number,
          "algorithm": bucket.algorithm, "bytes": bucket.num_bytes,
          "variables": list(bucket.tensors), "seconds": times.seconds,
          "exposed_seconds": times.exposed,
          "predicted_seconds": bucket.predicted}


def _dicts(lanes: Sequence[summary_lib.LaneTimes]) -> list[dict[str, Any]]:
  return [{"lane": lane.name, "busy_seconds": lane.busy,
           "waiting_seconds": lane.waiting} for lane in lanes]
