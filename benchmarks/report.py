"""Writes RESULTS.md from what a run measured, and from nothing else."""

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import cells
from benchmarks import report_sizes
from benchmarks import targets

from tf_cdops.explaining import text_table

_LOADS = """\
Loads: `resnet`, the gradients of ResNet-50: 214 tensors, 102 MB. `small`: 500
of 1 KB. `big`: 4 of 16 MB. `bert`, those of BERT-base: 199 tensors, 438 MB. N
is the number of logical CPU devices. All contenders of a cell reduce the same
tensors; one element of every result is used, and every element is compared
with the exact sum (#wrong counts those that differ)."""

_METHOD = """\
Times of two runs can't be compared; ratios within one can: the contenders of a
cell take turns, step by step, in ever another order, and the figure is the
median. The true ratio is "between" those two with a confidence of over 90%:
where 1 is between, neither is known to be the quicker. Build time and nodes are
those of the `batch_reduce_to` call alone; it is built twice, and the quicker
counts (once where that takes over 3 s), after a tiny one that pays for imports
and caches. The floor is a bare AddN over the same bytes, in one place;
spreading the sums over devices can be quicker (NOTES.md). "Read and use alone"
is a step that reads the inputs and uses an element of each, as every step does,
but reduces nothing: no all-reduce can bring a step below it."""

_WORKERS = """\
Each worker is a process on this machine with one CPU device. Ours, and
`ReductionToOneDevice`, are driven by one client, in one graph over gRPC.
MultiWorkerMirroredStrategy's workers run the same program, with the ring.
Gloo is PyTorch's, once in flat buckets of 25 MB with the copies in and out, as
DistributedDataParallel does, and once tensor by tensor; the better counts. A
step takes as long as its slowest process."""


def text(content: dict[str, Any], plot: str | None) -> str:
  """Returns the report; `plot` is the chart's file, None if there is none."""
  measured = _measured(content)
  sections = [
      "# Results", _heading(content), _verdicts(targets.judge(measured)),
      report_sizes.other_targets(content),
      f"## How\n\n{_LOADS}\n\n{_METHOD}", _details(measured),
      report_sizes.memory(content["memory"]),
      report_sizes.scaling(content["scaling"], plot)]
  return "\n\n".join(filter(None, sections)) + "\n"


def wrong_of_ours(content: dict[str, Any]) -> int:
  """Returns how many elements of ours weren't the exact sum, anywhere."""
  return (cells.wrong_of_ours(_measured(content))
          + sum(point["wrong"] for point in content["scaling"]))


def brief(section: str, measured: Sequence[dict[str, Any]]) -> str:
  """Returns a few words about what one task measured."""
  if section != "cells":
    return "measured"
  one = cells.Measured.from_dict(measured[0])
  ranked = sorted(one.results, key=lambda result: result.median)
  return ", ".join(f"{r.contender} {r.median * 1e3:.1f} ms" for r in ranked)


def _measured(content: dict[str, Any]) -> list[cells.Measured]:
  return [cells.Measured.from_dict(one) for one in content["cells"]]


def _heading(content: dict[str, Any]) -> str:
  lines = []
  if content["interrupted"]:
    lines.append("**The run was interrupted: this is what there was.**\n")
  if content["quick"]:
    lines.append("**A quick run, to see that the suite works: its figures mean "
                 "nothing.**\n")
  lines += [f"**Failed:** {failure}\n" for failure in content["failed"]]
  lines.append(f"{content['date']}, `{content['command']}`, "
               f"{content['seconds'] / 60:.0f} minutes.\n")
  lines.append(text_table.markdown(("", ""), content["machine"].items()))
  notes = [*content["notes"], *(note for one in _measured(content)
                                for note in one.notes)]
  lines += [f"\nNote: {note}" for note in dict.fromkeys(notes)]
  return "\n".join(lines)


def _verdicts(verdicts: Sequence[targets.Verdict]) -> str:
  """The targets, those that aren't met first."""
  unmet = [v for v in verdicts if v.met is False]
  met = [v for v in verdicts if v.met]
  missing = [v for v in verdicts if v.met is None]
  lines = ["## Targets\n", f"For the spec `auto`: {len(met)} met, {len(unmet)} "
           f"NOT met, {len(missing)} not measured in this run.\n"]
  header = ("target", "cell", ">ours", ">best of the others", "which",
            ">ratio", ">between", ">target", "", ">#wrong",
            ">read and use alone")
  for title, some in (("Not met", unmet), ("Met", met)):
    if some:
      lines += [f"### {title}\n",
                text_table.markdown(header, map(_verdict, some)), ""]
  if missing:
    lines += ["### Not measured\n",
              text_table.markdown(
                  ("target", "cell"),
                  ((v.target.text, v.cell) for v in missing))]
  return "\n".join(lines).rstrip()


def _verdict(verdict: targets.Verdict) -> Sequence[object]:
  assert verdict.ours is not None
  assert verdict.best is not None
  figure = {targets.TIME: lambda x: f"{x * 1e3:.1f} ms",
            targets.BUILD: lambda x: f"{x:.2f} s",
            targets.NODES: lambda x: f"{x:,}"}[verdict.target.quantity]
  return (verdict.target.text, verdict.cell, figure(verdict.ours),
          figure(verdict.best), verdict.rival, f"{verdict.ratio:.2f}",
          "{:.2f} and {:.2f}".format(*verdict.between)
          if verdict.between else "",
          f"≤ {verdict.target.limit:g}", "met" if verdict.met else "**NOT**",
          verdict.wrong,
          "" if verdict.nothing is None else f"{verdict.nothing * 1e3:.1f} ms")


def _details(measured: Iterable[cells.Measured]) -> str:
  lines = ["## Cell by cell"]
  for one in measured:
    lines.append(f"\n### {_title(one.cell)}\n")
    header = ["", ">min ms", ">median ms", ">p99 ms", ">steps", ">#wrong"]
    built = any(result.nodes for result in one.results)
    rows = []
    for result in sorted(one.results, key=lambda result: result.median):
      row = [result.contender, *(f"{seconds * 1e3:.1f}" for seconds in (
          result.least, result.median, result.p99)), result.samples,
             f"{result.wrong:,}"]
      if built:
        row += ([f"{result.build_seconds:.2f}", f"{result.nodes:,}"]
                if result.nodes else ["", ""])
      rows.append(row)
    lines.append(text_table.markdown(
        header + [">build s", ">nodes"] * built, rows))
  if any(one.cell.mode == cells.WORKERS for one in measured):
    lines.append(f"\n{_WORKERS}")
  return "\n".join(lines)


def _title(cell: cells.Cell) -> str:
  where = {cells.GRAPH: f"{cell.devices} devices, in a tf.function",
           cells.EAGER: f"{cell.devices} devices, eager",
           cells.WORKERS: f"{cell.devices} workers"}[cell.mode]
  return f"{cell.load}, {where}"
