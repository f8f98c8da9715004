"""Looks at a timeline's file as those who open it do; needs no TensorFlow."""

import collections
import itertools
from typing import Any

from tf_cdops.explaining.timeline import intervals

_FIRST_WORKER = 10  # Processes below are steps, buckets and links.


def check(test: Any, content: dict[str, Any]) -> None:
  """Checks what Chrome's importer asks of a file."""
  lanes = collections.defaultdict(list)
  test.assertNotEmpty(content["traceEvents"])
  for event in content["traceEvents"]:
    test.assertIn(event["ph"], "XM")
    test.assertIsInstance(event["name"], str)
    test.assertIsInstance(event["pid"], int)
    test.assertIsInstance(event["tid"], int)
    test.assertGreaterEqual(event["ts"], 0)
    if event["ph"] == "X":
      test.assertGreaterEqual(event["dur"], 0)
      lanes[event["pid"], event["tid"]].append(
          (event["ts"], event["ts"] + event["dur"]))
  for spans in lanes.values():  # Side by side; none are within others.
    for (_, end), (start, _) in itertools.pairwise(sorted(spans)):
      test.assertLessEqual(end, start + 2e-3)  # Both are rounded.


def busy_and_waiting(content: dict[str, Any]
                     ) -> dict[tuple[int, str], tuple[float, float]]:
  """Adds up the seconds that each device was busy, and that it waited."""
  names = {(event["pid"], event["tid"]): event["args"]["name"].split(" (")[0]
           for event in content["traceEvents"]
           if event["name"] == "thread_name"}
  busy, waiting = collections.defaultdict(list), collections.Counter()
  for event in content["traceEvents"]:
    if event["ph"] != "X" or event["pid"] < _FIRST_WORKER:
      continue
    lane = event["pid"], names[event["pid"], event["tid"]]
    start, seconds = event["ts"] / 1e6, event["dur"] / 1e6
    if event["cat"] == "waiting":
      waiting[lane] += seconds
    else:
      busy[lane].append((start, start + seconds))
  return {lane: (intervals.length(intervals.union(busy[lane])), waiting[lane])
          for lane in {*busy, *waiting}}
