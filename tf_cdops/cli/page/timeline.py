"""Writes a timeline as one page of HTML that needs nothing else."""

import html as html_lib
import math
from collections.abc import Iterable, Sequence

from tf_cdops.cli.page import style
from tf_cdops.cli.page import tables
from tf_cdops.explaining import wording as units
from tf_cdops.explaining.timeline import advice
from tf_cdops.explaining.timeline import intervals
from tf_cdops.explaining.timeline import summary as summary_lib
from tf_cdops.explaining.timeline import trace as trace_lib
from tf_cdops.explaining.timeline import wording

_WIDTH, _LABELS, _RIGHT, _TOP = 960, 190, 14, 26
_ROW, _GAP = 20, 6
_MOST_BUCKETS = 24
# What is nearer than this many pixels is drawn as one.
_LEAST = 0.5
_KINDS = {trace_lib.COMPUTING: "within", trace_lib.COMMUNICATION: "between",
          trace_lib.OTHER: "latency"}
_text = html_lib.escape


def html(trace: trace_lib.Trace, summary: summary_lib.Summary,
         title: str) -> str:
  """Returns the page of a trace that has a step at least."""
  return "\n".join([
      "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
      '<meta name="viewport" content="width=device-width, initial-scale=1">',
      f"<title>{_text(title)}</title><style>{style.CSS}</style></head>",
      "<body><main>", f"<h1>{_text(title)}</h1>",
      f"<p class='lead'>{_text(advice.advise(trace, summary))}</p>",
      _cards(summary), _drawn(trace, summary), _buckets(summary),
      _lanes(trace, summary), "</main></body></html>", ""])


def _cards(summary: summary_lib.Summary) -> str:
  return "<div class='cards'>" + "".join(
      f"<div><span>{_text(name)}</span><b>{_text(value)}</b>"
      f"<small>{_text(note)}</small></div>"
      for name, value, note in wording.figures(summary)) + "</div>"


def _buckets(summary: summary_lib.Summary) -> str:
  rows = wording.bucket_rows(summary)
  if not rows:
    return ""
  heads = [column.removeprefix(">") for column in wording.BUCKET_COLUMNS]
  return ("<section><h2>Buckets, in the order in which they are sent</h2>"
          f"{tables.table(heads, rows)}<p class='note'>Measured: how long any "
          "of it was under way. Predicted: alone, by the links that were given "
          "or are common. Exposed: while nothing was computed.</p></section>")


def _lanes(trace: trace_lib.Trace, summary: summary_lib.Summary) -> str:
  heads = [column.removeprefix(">") for column in wording.LANE_COLUMNS]
  clocks = "".join(f"<p class='note'>{_text(wording.describe_clock(clock))}."
                   "</p>" for clock in trace.clocks)
  return ("<section><h2>Devices and links</h2>"
          f"{tables.table(heads, wording.lane_rows(summary))}{clocks}"
          "</section>")


def _drawn(trace: trace_lib.Trace, summary: summary_lib.Summary) -> str:
  step = min(trace.steps, key=lambda one: abs(one.seconds - summary.step))
  drawing = _Drawing(trace, step)
  keys = "".join(
      f'<span class="key"><i class="{kind}"></i>{words}</span>'
      for kind, words in (("within", "computing"),
                          ("between", "all-reducing, or under way"),
                          ("latency", "other transfers")))
  return (f"<section><h2>Step {step.number}</h2>{drawing.svg()}"
          f"<p class='legend'>{keys}</p></section>")


class _Drawing:
  """One step: time goes to the right, and each lane is a row."""

  def __init__(self, trace: trace_lib.Trace, step: trace_lib.Step):
    self._trace, self._step = trace, step
    self._y = float(_TOP)
    self._parts: list[str] = []

  def svg(self) -> str:
    for device in self._trace.devices:
      spans = [span for span in self._trace.spans
               if span.device == device and not span.in_flight]
      self._lane(self._trace.name_of(device), [
          (kind, [(one.start, one.end) for one in spans if one.kind == kind])
          for kind in _KINDS])
    for ends, transfers in summary_lib.links(self._trace).items():
      self._lane(summary_lib.link_name(ends), [
          (kind, [(one.start, one.end) for one in transfers
                  if (one.bucket is None) == (kind == trace_lib.OTHER)])
          for kind in (trace_lib.OTHER, trace_lib.COMMUNICATION)])
    self._bucket_lanes()
    height = self._y + 4
    return (f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
            f'class="timeline" aria-label="What ran in a step">'
            f'{self._axis(height)}{"".join(self._parts)}</svg>')

  def _bucket_lanes(self) -> None:
    drawn = 0
    for i, bucket in enumerate(self._trace.buckets):
      found = [(one.start, one.end) for one in self._trace.of_bucket(i)
               if one.end > self._step.start and one.start < self._step.end]
      if not found or drawn == _MOST_BUCKETS:
        continue
      drawn += 1
      self._lane(f"{bucket.label}, {bucket.algorithm}",
                 [(trace_lib.COMMUNICATION, found)],
                 wording.describe_bucket(bucket))

  def _x(self, moment: float) -> float:
    share = (moment - self._step.start) / (self._step.seconds or 1)
    return _LABELS + min(max(share, 0), 1) * (_WIDTH - _LABELS - _RIGHT)

  def _lane(self, name: str,
            kinds: Iterable[tuple[str, Sequence[intervals.Interval]]],
            title: str = "") -> None:
    label = name if len(name) <= 30 else f"{name[:29]}…"
    bars = "".join(
        f'<rect class="{_KINDS[kind]}" x="{left:.2f}" y="{self._y:.0f}" '
        f'width="{right - left:.2f}" height="{_ROW}">'
        f'<title>{_text(title or name)}</title></rect>'
        for kind, found in kinds for left, right in self._bars(found))
    self._parts.append(
        f'<g class="row"><text class="lane" x="{_LABELS - 8}" '
        f'y="{self._y + _ROW - 6:.0f}">{_text(label)}</text>{bars}</g>')
    self._y += _ROW + _GAP

  def _bars(self, found: Iterable[intervals.Interval]) -> intervals.Intervals:
    cut = intervals.within(found, self._step.start, self._step.end)
    return intervals.union(
        (self._x(start), max(self._x(end), self._x(start) + _LEAST))
        for start, end in cut)

  def _axis(self, height: float) -> str:
    seconds = self._step.seconds or 1e-3
    unit = 10.0 ** math.floor(math.log10(seconds))
    unit *= 0.5 if seconds / unit > 4 else 0.2
    unit *= 2 if seconds / unit > 10 else 1
    drawn = []
    for i in range(int(seconds / unit) + 1):
      x = self._x(self._step.start + i * unit)
      label = units.format_duration(i * unit) if i else "0"
      drawn.append(f'<path class="grid" d="M{x:.1f} {_TOP - 6}V{height:.0f}"/>'
                   f'<text class="tick" x="{min(x, _WIDTH - 20):.1f}" y="14">'
                   f'{label}</text>')
    return "".join(drawn)
