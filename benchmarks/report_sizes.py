"""The report's parts about memory, and about what grows with size."""

from collections.abc import Sequence
from typing import Any

from tf_cdops.explaining import text_table
from tf_cdops.planning import planner

_EXPLAIN_SECONDS = 5.0

_MEMORY = """\
Resident memory of a process with one contender. "Kept" is what is there between
steps, beyond the inputs: the graph, and whatever TensorFlow keeps. "Extra" is
the peak of a step beyond that, of five steps. One load is what one replica
holds. The limit for `auto`: the packs' cap (64 MiB) and the working set of one
bucket, which is N times its size: what arrives, and the sum. Copies between
logical CPU devices of one process share memory, so it should be far below; and
as a result is let go of once an element of it is used, not all results need be
there at a time."""

_NODES = """\
Half of the tensors are 1 KB matrices, which `auto` packs, half are 128 KB.
`node_count.py` predicts the nodes: it runs each bucket's algorithm on a fabric
that counts its verbs. They grow with tensors and, for `auto`, with devices."""


def other_targets(content: dict[str, Any]) -> str:
  """Those that aren't ratios of times: each is a count or a limit."""
  rows = []
  for one in content["explaining"]:
    met = one["seconds"] <= _EXPLAIN_SECONDS
    rows.append((f"`explain` for {one['workers']} by {one['devices']} devices",
                 f"{one['seconds']:.1f} s", f"≤ {_EXPLAIN_SECONDS:g} s",
                 _said(met)))
  crossing = content["crossing"]
  if crossing:
    equal = [one for one in crossing if one["counted"] == one["explained"]]
    rows.append(("bytes across workers, counted in the built graph, are those "
                 "of `explain`", f"{len(equal)} of {len(crossing)} specs and "
                 "sizes", "all", _said(len(equal) == len(crossing))))
  for one in content["memory"]:
    if one["largest"]:
      limit = planner.DEFAULT_CAP + one["devices"] * one["largest"]
      rows.append((f"memory, {one['load']}, N = {one['devices']}: a step's "
                   "extra", f"{_megabytes(one['extra'])} MB",
                   f"≤ {_megabytes(limit)} MB", _said(one["extra"] <= limit)))
  points = content["scaling"]
  if points:
    equal = [one for one in points if one["nodes"] == one["predicted"]]
    rows.append(("nodes, counted in the graph, are those predicted",
                 f"{len(equal)} of {len(points)} graphs", "all",
                 _said(len(equal) == len(points))))
  if not rows:
    return ""
  return "### Counts and limits\n\n" + text_table.markdown(
      ("target", ">measured", ">target", ""), rows)


def _said(met: bool) -> str:
  return "met" if met else "**NOT**"


def memory(measured: Sequence[dict[str, Any]]) -> str:
  if not measured:
    return ""
  rows = [(one["load"], one["devices"], one["contender"],
           _megabytes(one["extra"]),
           f"{one['extra'] / one['num_bytes']:.2f}", _megabytes(one["kept"]),
           f"{one['kept'] / one['num_bytes']:.2f}")
          for one in measured]
  return f"## Memory\n\n{_MEMORY}\n\n" + text_table.markdown(
      ("load", ">N", "", ">extra MB", ">in loads", ">kept MB", ">in loads"),
      rows)


def _megabytes(num_bytes: int) -> str:
  return f"{num_bytes / 1e6:,.0f}"


def scaling(points: Sequence[dict[str, Any]], plot: str | None) -> str:
  if not points:
    return ""
  ranked = sorted(points, key=lambda one: (
      one["spec"], one["tensors"], one["devices"]))
  rows = [(f"`{one['spec']}`", one["devices"], one["tensors"],
           f"{one['nodes']:,}", f"{one['predicted']:,}",
           f"{one['build_seconds']:.3f}", f"{one['median'] * 1e3:.1f}",
           one["wrong"]) for one in ranked]
  chart = f"\n\n![Nodes, build time and step time as sizes grow]({plot})"
  return f"## Growing\n\n{_NODES}\n\n" + text_table.markdown(
      ("spec", ">devices", ">tensors", ">nodes", ">predicted",
       ">build s", ">step ms", ">#wrong"), rows) + (chart if plot else "")
