"""Writes an explanation for people, as plain text of 100 columns."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tf_cdops.explaining import cost
from tf_cdops import spec as spec_lib

if TYPE_CHECKING:
  from tf_cdops.explaining import explanation

_WIDTH = 100
_MOST_OTHERS = 12
_MARKS = {"exact": "", "traced": "", "modelled": "*", "extrapolated": "~"}


def report(e: "explanation.Explanation") -> str:
  """Returns the report."""
  if len(e.topology.devices) == 1:
    return f"{_heading(e)}\n\nOne device alone has nothing to send."
  sections = [_heading(e), _parts(e), _total(e), _others(e)]
  if e.rules:
    sections.append(_rules(e))
  return "\n\n".join(sections)


def num_bytes(number: float) -> str:
  """Returns a size for people: 1.5 MiB."""
  for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
    if number < 1024 or unit == "TiB":
      break
    number /= 1024
  return f"{number:,.0f} {unit}" if (
      unit == "bytes" or number >= 100) else f"{number:.3g} {unit}"


def seconds(number: float) -> str:
  """Returns a duration for people: 1.5 ms."""
  for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
    if number >= size:
      return f"{number / size:.3g} {unit}" if number < 1000 else (
          f"{number:,.0f} s")
  return f"{number / 1e-6:.2g} µs"


def devices(e: "explanation.Explanation") -> str:
  """Returns what the devices are, in words."""
  sizes = [len(ranks) for ranks in e.topology.workers]
  kinds = " and ".join(sorted(e.topology.device_types))
  each = (f"{sizes[0]} {kinds}{'s' if sizes[0] > 1 else ''}"
          if len(set(sizes)) == 1 else
          f"{min(sizes)} to {max(sizes)} {kinds}s")
  return (f"1 worker with {each}" if len(sizes) == 1
          else f"{len(sizes)} workers with {each} each")


def link(one: cost.Link) -> str:
  """Returns a link's name and numbers."""
  return (f"{one.name} ({seconds(one.latency_seconds)}, "
          f"{one.bytes_per_second / 1e9:.3g} GB/s)")


def ranges(numbers: Sequence[int], most: int = 4) -> str:
  """Returns sorted numbers as "0-3, 7", shortened."""
  runs: list[list[int]] = []
  for number in numbers:
    if runs and runs[-1][1] == number - 1:
      runs[-1][1] = number
    else:
      runs.append([number, number])
  texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
  return ", ".join(texts[:most] + ["…"] * (len(texts) > most))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns aligned columns; a heading that begins with ">" is at the right.

  The last column is wrapped to what is left of the width.
  """
  right = [column.startswith(">") for column in columns]
  heads = [column.removeprefix(">") for column in columns]
  widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
  left = max(20, _WIDTH - sum(w + 2 for w in widths[:-1]))
  lines = []
  rule = ["-" * w for w in (*widths[:-1], min(widths[-1], left))]
  for row in [heads, rule, *rows]:
    *cells, last = row
    start = "".join(
        (cell.rjust(w) if r else cell.ljust(w)) + "  "
        for cell, w, r in zip(cells, widths, right, strict=False))
    wrapped = textwrap.wrap(last, left, break_long_words=False) or [""]
    if right[-1]:
      wrapped = [text.rjust(min(widths[-1], left)) for text in wrapped]
    lines.append((start + wrapped[0]).rstrip())
    lines += [" " * len(start) + text for text in wrapped[1:]]
  return "\n".join(lines)


def _heading(e: "explanation.Explanation") -> str:
  several = len(e.topology.workers) > 1
  links = f"{link(e.network.inside)} inside a worker"
  if several:
    links = (f"{link(e.network.inside)} inside workers, "
             f"{link(e.network.across)} across")
  return "\n".join([
      f"all_reduce_spec  {e.spec}",
      f"devices          {devices(e)}",
      f"links            {links}",
      f"tensors          {len(e.sizes):,}, {num_bytes(e.num_bytes)} on each "
      "replica"])


def _parts(e: "explanation.Explanation") -> str:
  several = len(e.topology.workers) > 1
  columns = ["algorithm", ">shards", ">tensors", ">buckets", ">bytes",
             ">steps", ">moved inside"]
  columns += [">moved across"] if several else []
  rows = []
  for part in e.parts:
    moved = [num_bytes(part.inside)]
    moved += [num_bytes(part.across)] if several else []
    rows.append([
        part.algorithm, str(part.shards), f"{len(part.tensors):,}",
        f"{part.buckets:,}" + " packed" * part.packed,
        num_bytes(part.num_bytes), str(part.steps), *moved,
        seconds(part.time.total)])
  lines = [table([*columns, ">time"], rows)]
  for part in e.parts:
    lines.append(_wrapped(
        f"{part.algorithm}: {part.why}. Tensors {ranges(part.tensors)}, "
        + (f"{num_bytes(part.smallest)} " if part.smallest == part.largest
           else f"{num_bytes(part.smallest)} to {num_bytes(part.largest)} ")
        + ("a pack." if part.packed else "each.") + basis(part.basis)))
  return "\n".join(["The plan, in the order in which it is sent:", "",
                    *lines]) if rows else "There is nothing to send."


def basis(name: str) -> str:
  """Returns how sure numbers are, as a sentence to add; "" if exact."""
  return {
      "exact": "",
      "traced": " Counted by a trace.",
      "modelled": " Modelled as a ring: TensorFlow does it out of sight.",
      "extrapolated": " Extrapolated from some of them, or fewer devices.",
  }[name]


def _total(e: "explanation.Explanation") -> str:
  time, several = e.total.time, len(e.topology.workers) > 1
  spent = [f"{seconds(time.latency)} waiting for steps",
           f"{seconds(time.inside)} on links inside"]
  spent += [f"{seconds(time.across)} on links across"] if several else []
  ratio = time.total / e.least.total if e.least.total else 1
  return "\n".join([
      f"predicted        {seconds(time.total)}: {', '.join(spent)}",
      f"lower bound      {seconds(e.least.total)}: no all-reduce of these "
      f"bytes can be quicker; this is {ratio:.3g} times as long",
      "                 A model, to compare ways with: measure with "
      "`tf_cdops bench`."])


def _others(e: "explanation.Explanation") -> str:
  several = len(e.topology.workers) > 1
  ways = sorted([e.total, *e.others], key=lambda way: way.time.total)
  shown = ways[:_MOST_OTHERS]
  if e.total not in shown:
    shown.append(e.total)
  rows = []
  for way in shown:
    moved = [num_bytes(way.inside)] + ([num_bytes(way.across)] * several)
    rows.append([
        ("> " if way is e.total else "  ") + way.spec,
        _MARKS[way.basis] + seconds(way.time.total), f"{way.steps:,}", *moved,
        way.time.mostly])
  columns = ["  spec", ">time", ">steps", ">moved inside",
             *[">moved across"] * several, "mostly spent on"]
  left_out = len(ways) - len(shown)
  end = f"\n  … and {left_out} slower" if left_out > 0 else ""
  for mark, meaning in (("*", "modelled as a ring"), ("~", "extrapolated")):
    if any(_MARKS[way.basis] == mark for way in shown):
      end += f"\n  {mark} {meaning}"
  return ("The same tensors by each algorithm that can run on such devices"
          f"{_nccl(e)}:\n\n{table(columns, rows)}{end}")


def _nccl(e: "explanation.Explanation") -> str:
  names = [way.spec for way in (e.total, *e.others)]
  names += [part.algorithm for part in e.parts]
  return ("\n(nccl: if TensorFlow has its NCCL kernel)"
          if any("nccl" in name for name in names) else "")


def _rules(e: "explanation.Explanation") -> str:
  rows = [[rule.where, "any size" if rule.limit is None else
           f"up to {spec_lib.format_bytes(rule.limit)}", rule.algorithm,
           "yes" if rule.pack else "no", rule.why] for rule in e.rules]
  return ("The rules of auto, of which the first that fits is taken:\n\n"
          + table(["where", "tensors", "algorithm", "packed", "why"], rows))


def _wrapped(text: str) -> str:
  return textwrap.fill(text, _WIDTH, initial_indent="  ",
                       subsequent_indent="    ")
