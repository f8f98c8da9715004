"""Writes an explanation for people, as plain text."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tf_cdops.explaining import text_table
from tf_cdops.explaining import wire_wording
from tf_cdops.planning import spec as spec_lib

if TYPE_CHECKING:
  from tf_cdops import cost
  from tf_cdops.explaining import explanation
  from tf_cdops.explaining import parts

WIDTH = 100
_MOST_OTHERS = 12
OVERLAP = ("Parts share the links and overlap, so all of them may take less "
           "than their times added up.")
_MARKS = {"exact": "", "traced": "", "modelled": "*", "extrapolated": "~"}


def report(e: "explanation.Explanation", width: int = WIDTH,
           assumed: str = "") -> str:
  """Returns the report, in lines of up to `width` columns.

  Args:
    e: what to report.
    width: the most columns of a line.
    assumed: what of it nobody has given, in words.
  """
  heading = _heading(e, width)
  if assumed:
    heading += f"\n{_field('assumed', assumed, width)}"
  if len(e.topology.devices) == 1:
    return f"{heading}\n\nOne device alone has nothing to send."
  if not e.num_bytes:
    return f"{heading}\n\nThere is nothing to send."
  sections = [heading, _parts(e, width), _total(e, width),
              _others(e, width)]
  if e.rules:
    sections.append(_rules(e, width))
  return "\n\n".join(sections)


def format_bytes(number: float) -> str:
  """Returns a size for people: 1.5 MiB."""
  if number < 1024:
    return f"{number:,.0f} byte{'s' * (number != 1)}"
  for unit in ("KiB", "MiB", "GiB", "TiB"):
    number /= 1024
    if number < 999.5:
      return f"{number:.3g} {unit}"
  return f"{number:,.0f} TiB"


def format_duration(number: float) -> str:
  """Returns a duration for people: 1.5 ms."""
  if number and number < 1e-11:
    return "< 0.01 ns"
  for unit, size in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1)):
    if number and number / size < 999.5:
      return f"{number / size:.3g} {unit}"
  return f"{number:,.0f} s"


def compare_with_bound(e: "explanation.Explanation",
                       subject: str = "this") -> str:
  """Returns how far the prediction is from the least, in words."""
  ratio = e.total.time.total / e.least.total if e.least.total else 1
  if ratio < 1.005:
    return f"{subject} is as quick"
  number = f"{ratio:.3g}" if ratio < 999.5 else f"{ratio:,.0f}"
  return f"{subject} takes {number} times as long"


def describe_devices(e: "explanation.Explanation") -> str:
  """Returns what the devices are, in words."""
  sizes = [len(ranks) for ranks in e.topology.workers]
  kinds = " and ".join(sorted(e.topology.device_types))
  each = (f"{sizes[0]} {kinds}{'s' if sizes[0] > 1 else ''}"
          if len(set(sizes)) == 1 else
          f"{min(sizes)} to {max(sizes)} {kinds}s")
  return (f"1 worker with {each}" if len(sizes) == 1
          else f"{len(sizes)} workers with {each} each")


def format_link(one: "cost.Link") -> str:
  """Returns a link's name and numbers."""
  return (f"{one.name} ({format_duration(one.latency_seconds)}, "
          f"{one.bytes_per_second / 1e9:.3g} GB/s)")


def format_ranges(numbers: Sequence[int], most: int = 4) -> str:
  """Returns sorted numbers as "0-3, 7", shortened."""
  runs: list[list[int]] = []
  for number in numbers:
    if runs and runs[-1][1] == number - 1:
      runs[-1][1] = number
    else:
      runs.append([number, number])
  texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
  return ", ".join(texts[:most] + ["…"] * (len(texts) > most))


def _heading(e: "explanation.Explanation", width: int) -> str:
  several = len(e.topology.workers) > 1
  links = f"{format_link(e.network.inside)} inside a worker"
  if several:
    links = (f"{format_link(e.network.inside)} inside workers, "
             f"{format_link(e.network.across)} across")
  return "\n".join([
      _field("all_reduce_spec", e.total.spec, width),
      _field("devices", describe_devices(e), width),
      _field("links", links, width),
      _field("tensors", f"{len(e.sizes):,}, {format_bytes(e.num_bytes)} on "
             "each replica", width)])


def _field(name: str, text: str, width: int) -> str:
  return textwrap.fill(text, width, initial_indent=name.ljust(17),
                       subsequent_indent=" " * 17, break_long_words=False)


def _parts(e: "explanation.Explanation", width: int) -> str:
  several = len(e.topology.workers) > 1
  columns = ["algorithm", ">shards", ">tensors", ">buckets", ">bytes",
             ">steps", ">moved inside"]
  columns += [">moved across"] if several else []
  rows = []
  for part in e.parts:
    moved = [format_bytes(part.inside)]
    moved += [format_bytes(part.across)] if several else []
    rows.append([
        part.algorithm, str(part.shards), f"{len(part.tensors):,}",
        f"{part.buckets:,}" + " packed" * part.packed,
        format_bytes(part.num_bytes), f"{part.steps:,}", *moved,
        _MARKS[part.basis] + format_duration(part.time.total)])
  lines = ["The plan, in the order in which it is sent:", "",
           text_table.draw([*columns, ">time"], rows, width,
                           (">shards", ">moved inside", ">buckets", ">steps"))]
  lines += [_wrapped(_about(part), width) for part in e.parts]
  lines += [_wrapped(text, width) for text in wire_wording.about_wire(e)]
  if len(e.parts) > 1:
    lines.append(_wrapped(OVERLAP, width))
  return "\n".join(lines)


def _about(part: "parts.Part") -> str:
  one, size = len(part.tensors) == 1, format_bytes(part.largest)
  if part.smallest != part.largest:
    size = f"{format_bytes(part.smallest)} to {size}"
  each = " a pack" if part.packed else "" if one else " each"
  return (f"{part.algorithm}: {part.why}. Tensor{'s' * (not one)} "
          f"{format_ranges(part.tensors)}, {size}{each}."
          f"{describe_basis(part.basis)}")


def describe_basis(name: str) -> str:
  """Returns how sure numbers are, as a sentence to add; "" if exact."""
  return {
      "exact": "",
      "traced": " Counted by a trace.",
      "modelled": " Modelled as a ring: TensorFlow does it out of sight.",
      "extrapolated": " Extrapolated from the largest of them.",
  }[name]


def _total(e: "explanation.Explanation", width: int) -> str:
  time, several = e.total.time, len(e.topology.workers) > 1
  spent = [f"{format_duration(time.latency)} waiting for steps",
           f"{format_duration(time.inside)} on links inside"]
  if several:
    spent.append(f"{format_duration(time.across)} on links across")
  spent.append(f"{format_duration(time.overhead)} on messages and packing")
  caveat = "A model, to compare ways with: measure with `tf_cdops bench`."
  if e.topology.is_one_cpu:
    caveat += (" CPUs of one process share its memory: what they send each "
               "other is added up.")
  return "\n".join([
      _field("predicted",
             f"{format_duration(time.total)}: {', '.join(spent)}", width),
      _field("lower bound", f"{format_duration(e.least.total)}: no all-reduce "
             f"of these bytes can be quicker; {compare_with_bound(e)}", width),
      *([_field("not hidden", f"{format_duration(e.exposed_seconds)}: what is "
                "left to send when a backward pass of "
                f"{format_duration(e.backward_seconds)} has ended, if "
                "gradients appear evenly in it", width)]
        if e.exposed_seconds is not None and e.backward_seconds else []),
      _field("", caveat, width)])


def _others(e: "explanation.Explanation", width: int) -> str:
  several = len(e.topology.workers) > 1
  ways = sorted([e.total, *e.others], key=lambda way: way.time.total)
  shown = ways[:_MOST_OTHERS]
  if e.total not in shown:
    shown.append(e.total)
  rows = []
  for way in shown:
    moved = [format_bytes(way.inside)] + ([format_bytes(way.across)] * several)
    rows.append([
        ("> " if way is e.total else "  ") + way.spec,
        _MARKS[way.basis] + format_duration(way.time.total), f"{way.steps:,}",
        *moved, way.time.dominant_term])
  columns = ["  spec", ">time", ">steps", ">inside", *[">across"] * several,
             "mostly spent on"]
  drawn = text_table.draw(columns, rows, width, (
      ">inside", ">steps", ">across", "mostly spent on"))
  left_out = len(ways) - len(shown)
  end = f"\n  … and {left_out} slower" if left_out > 0 else ""
  for mark, meaning in (("*", "modelled as a ring"), ("~", "extrapolated")):
    if any(_MARKS[way.basis] == mark for way in shown):
      end += f"\n  {mark} {meaning}"
  title = textwrap.fill("The same tensors by each algorithm that can run on "
                        "such devices, with the bytes moved:", width)
  return f"{title}{_nccl(e)}\n\n{drawn}{end}"


def _nccl(e: "explanation.Explanation") -> str:
  names = [way.spec for way in (e.total, *e.others)]
  names += [part.algorithm for part in e.parts]
  return ("\n(nccl: if TensorFlow has its NCCL kernel)"
          if any("nccl" in name for name in names) else "")


def _rules(e: "explanation.Explanation", width: int) -> str:
  rows = [[rule.where, "any size" if rule.limit is None else
           f"up to {spec_lib.format_bytes(rule.limit)}",
           rule.algorithm + f"#{rule.shards}" * (rule.shards > 1),
           "yes" if rule.pack else "no", rule.why] for rule in e.rules]
  title = textwrap.fill("The rules of auto for these tensors, of which the "
                        "first that fits is taken:", width)
  return (f"{title}\n\n"
          + text_table.draw(["where", "tensors", "algorithm", "packed", "why"],
                            rows, width, ("packed",)))


def _wrapped(text: str, width: int) -> str:
  return textwrap.fill(text, width, initial_indent="  ",
                       subsequent_indent="    ")
