"""Draws a schedule as SVG: devices are lanes, steps are columns."""

import collections
import html

from tf_cdops.explaining import schedule as schedule_lib

_WIDTH = 960
_LABELS = 62
_STEPS_A_ROW = 8
_TOP = 26
_BETWEEN_WORKERS = 14


def colour(replicas: int, everyone: int) -> str:
  """Returns the colour of a sum of this many replicas."""
  if replicas == everyone:
    return "hsl(158 70% 38%)"
  share = (replicas - 1) / max(everyone - 2, 1)
  return f"hsl(214 {60 + 25 * share:.0f}% {84 - 42 * share:.0f}%)"


def svg(schedule: schedule_lib.Schedule) -> str:
  """Returns the drawing; long schedules go on in further rows."""
  rows, offset = [], 0.0
  count = len(schedule.steps)
  for first in range(0, max(count, 1), _STEPS_A_ROW):
    row = _Row(schedule, first, min(first + _STEPS_A_ROW, count))
    rows.append(f'<g transform="translate(0 {offset:.0f})">{row.draw()}</g>')
    offset += row.height
  name = html.escape(schedule.algorithm)
  return (f'<svg viewBox="0 0 {_WIDTH} {offset:.0f}" role="img" '
          f'aria-label="The steps of {name}" class="schedule">'
          f'{_MARKERS}{"".join(rows)}</svg>')


def legend(schedule: schedule_lib.Schedule) -> str:
  """Returns what the colours mean, as HTML."""
  p = schedule.devices
  counts = sorted({held for step in schedule.steps for row in step.held
                   for held in row if held} | {1})
  cells = "".join(
      f'<span class="key"><i style="background:{colour(k, p)}"></i>'
      f'{"all " if k == p else ""}{k}</span>' for k in counts)
  across = ('<span class="key"><i class="line across"></i>to another worker'
            '</span>' if len(set(schedule.workers)) > 1 else "")
  return (f'<p class="legend">Replicas in the sum: {cells} '
          '<span class="key"><i class="line inside"></i>inside a worker</span>'
          f'{across}</p>')


_MARKERS = "<defs>" + "".join(
    f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
    'markerHeight="6" orient="auto-start-reverse">'
    f'<path class="head {kind}" d="M0 0.5 8 4 0 7.5z"/></marker>'
    for kind in ("inside", "across")) + "</defs>"


class _Row:
  """Some steps of a schedule, with what is held before and after each."""

  def __init__(self, schedule: schedule_lib.Schedule, first: int, last: int):
    self._schedule, self._first, self._last = schedule, first, last
    # A last row with few steps keeps the others' proportions.
    columns = min(len(schedule.steps), _STEPS_A_ROW) or 1
    room = _WIDTH - _LABELS - 8
    self._bar = min(110.0, room * 0.42 / (columns + 1))
    self._gap = min(150.0, (room - (columns + 1) * self._bar) / columns)
    self._lane = 30 if len(schedule.places) <= 10 else 22
    self._y: dict[int, float] = {}
    y, worker = float(_TOP), None
    for place in sorted(range(len(schedule.places)),
                        key=lambda i: (schedule.workers[i], i)):
      if worker is not None and schedule.workers[place] != worker:
        y += _BETWEEN_WORKERS
      worker = schedule.workers[place]
      self._y[place] = y + self._lane / 2
      y += self._lane
    self.height = y + 22

  def draw(self) -> str:
    parts = [self._workers()]
    for place, name in enumerate(self._schedule.places):
      parts.append(f'<text class="lane" x="{_LABELS - 10}" '
                   f'y="{self._y[place] + 4:.1f}">{html.escape(name)}</text>')
    for column in range(self._last - self._first + 1):
      parts.append(self._states(column))
    for column in range(self._last - self._first):
      parts.append(self._transfers(column))
    return "".join(parts)

  def _x(self, column: int) -> float:
    return _LABELS + column * (self._bar + self._gap)

  def _workers(self) -> str:
    """A frame round each worker's lanes."""
    lanes = collections.defaultdict(list)
    for place, worker in enumerate(self._schedule.workers):
      lanes[worker].append(self._y[place])
    width = self._x(self._last - self._first) + self._bar
    return "".join(
        f'<rect class="worker" x="4" y="{min(ys) - self._lane / 2 - 2:.1f}" '
        f'width="{width:.1f}" rx="6" '
        f'height="{max(ys) - min(ys) + self._lane + 4:.1f}"/>'
        for ys in lanes.values())

  def _states(self, column: int) -> str:
    schedule, number = self._schedule, self._first + column
    held = schedule.steps[number - 1].held if number else schedule.start
    x = self._x(column)
    label = f"after {number}" if number else "start"
    drawn = [f'<text class="column" x="{x + self._bar / 2:.1f}" y="14">'
             f'{label}</text>']
    for place, counts in enumerate(held):
      y, height = self._y[place] - self._lane * 0.3, self._lane * 0.6
      unit = self._bar / len(counts)
      for start, stop, count in _runs(counts):
        if count:
          drawn.append(
              f'<rect x="{x + start * unit:.1f}" y="{y:.1f}" '
              f'width="{(stop - start) * unit:.1f}" height="{height:.1f}" '
              f'fill="{colour(count, schedule.devices)}"/>')
      drawn.append(f'<rect class="vector" x="{x:.1f}" y="{y:.1f}" rx="1.5" '
                   f'width="{self._bar:.1f}" height="{height:.1f}"/>')
    return "".join(drawn)

  def _transfers(self, column: int) -> str:
    schedule, step = self._schedule, self._schedule.steps[self._first + column]
    left = self._x(column) + self._bar + 2
    right = self._x(column + 1) - 2
    if step.engine:
      middle, ys = (left + right) / 2, self._y.values()
      return (f'<rect class="engine" x="{left + 6:.1f}" rx="4" '
              f'y="{min(ys) - 8:.1f}" width="{right - left - 12:.1f}" '
              f'height="{max(ys) - min(ys) + 16:.1f}"/>'
              f'<text class="column" x="{middle:.1f}" '
              f'y="{(max(ys) + min(ys)) / 2:.1f}">'
              f'{html.escape(step.engine)}</text>')
    pieces: dict[tuple[int, int, bool], list[schedule_lib.Piece]]
    pieces = collections.defaultdict(list)
    for transfer in step.transfers:
      key = transfer.source, transfer.target, transfer.across
      pieces[key] += transfer.pieces
    drawn, bend = [], (right - left) * 0.45
    for (source, target, across), sent in pieces.items():
      y, z = self._y[source], self._y[target]
      kind = "across" if across else "inside"
      words = ", ".join(
          f"part {piece.start}" + (f" to {piece.stop - 1}" if (
              piece.stop - piece.start > 1) else "")
          + f", sum of {piece.replicas}" for piece in sent)
      drawn.append(
          f'<path class="arrow {kind}" marker-end="url(#{kind})" d="M{left:.1f}'
          f' {y:.1f}C{left + bend:.1f} {y:.1f} {right - bend:.1f} {z:.1f} '
          f'{right:.1f} {z:.1f}"><title>{html.escape(schedule.places[source])} '
          f'to {html.escape(schedule.places[target])}: {words}</title></path>')
    return "".join(drawn)


def _runs(counts: tuple[int, ...]) -> list[tuple[int, int, int]]:
  """Returns (start, stop, value) of neighbours that are equal."""
  runs: list[tuple[int, int, int]] = []
  for i, count in enumerate(counts):
    if runs and runs[-1][2] == count:
      runs[-1] = (runs[-1][0], i + 1, count)
    else:
      runs.append((i, i + 1, count))
  return runs
