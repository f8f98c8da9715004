"""Draws which sizes go which way, and how long each way takes, as SVG."""

import collections
import html
import math
from typing import NamedTuple

from tf_cdops import cost
from tf_cdops import explaining
from tf_cdops import registry
from tf_cdops.explaining import wording
from tf_cdops.planning import spec as spec_lib

_WIDTH, _HEIGHT = 960, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 30, 96
_BARS = 46
_MOST_CURVES = 6
# Okabe and Ito's colours, which most people can tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


class _Band(NamedTuple):
  """What is used for sizes up to a limit, None for no limit."""

  name: str
  limit: int | None
  label: str


class Chart:
  """The chart for an explanation."""

  def __init__(self, explanation: explaining.Explanation):
    self._e = explanation
    sizes = [size.num_bytes for size in explanation.sizes if size.num_bytes]
    self._bands = _bands(explanation)
    limits = [limit for _, limit, _ in self._bands if limit]
    known = (sizes + limits) or [1024]
    self._low = max(4, min(known) // 4)
    self._high = max(known) * 4
    self._curves = self._distinct_curves()
    self._names = {name: _COLOURS[i % len(_COLOURS)]
                   for i, name in enumerate(self._curves)}
    times = [t for curve in self._curves.values() for _, t in curve if t] or [1]
    self._quick = 10 ** math.floor(math.log10(min(times)))
    self._slow = max(10 ** math.ceil(math.log10(max(times))), self._quick * 10)

  def svg(self) -> str:
    return (f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" class="chart" '
            'aria-label="Predicted time by size">'
            f'{self._draw_bands()}{self._axes()}{self._histogram()}'
            f'{self._draw_curves()}</svg>')

  def legend(self) -> str:
    """Returns the curves' names, as HTML."""
    keys = "".join(
        f'<span class="key"><i class="line" style="border-color:{colour}'
        f'{";border-top-style:dashed" if i >= 3 else ""}"></i>'
        f'{html.escape(name)}</span>'
        for i, (name, colour) in enumerate(self._names.items()))
    return f'<p class="legend">One tensor by itself: {keys}</p>'

  def _distinct_curves(self) -> dict[str, list[tuple[float, float]]]:
    """Those of the spec, and of the quickest others that differ from them."""
    curves = {name: self._curve(name) for name, _, _ in self._bands}
    for way in self._e.others:
      if len(curves) >= _MOST_CURVES:
        break
      if way.spec == spec_lib.AUTO or way.spec in curves:
        continue
      curve = self._curve(way.spec)
      if not any(_same(curve, other) for other in curves.values()):
        curves[way.spec] = curve
    return curves

  def _curve(self, name: str) -> list[tuple[float, float]]:
    alg, _, shards = name.partition("#")
    algorithm = registry.lookup(alg, int(shards or 1))
    model, points = cost.Model(self._e.topology, self._e.network), []
    steps = 24 if len(self._e.topology.devices) <= 256 else 8
    for i in range(steps + 1):
      size = self._low * (self._high / self._low) ** (i / steps)
      elements = max(1, round(size / 4))
      one = cost.AllReduce(algorithm, elements, 4)
      points.append((size, model.cost([one]).time.total))
    return points

  def _x(self, size: float) -> float:
    share = math.log(size / self._low) / math.log(self._high / self._low)
    return _LEFT + min(max(share, 0), 1) * (_WIDTH - _LEFT - _RIGHT)

  def _y(self, time: float) -> float:
    share = math.log(time / self._quick) / math.log(self._slow / self._quick)
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)

  def _draw_bands(self) -> str:
    drawn, start = [], float(_LEFT)
    for name, limit, label in self._bands:
      stop = self._x(limit) if limit else float(_WIDTH - _RIGHT)
      colour = self._names[name]
      drawn.append(
          f'<rect x="{start:.1f}" y="{_TOP}" width="{stop - start:.1f}" '
          f'height="{_HEIGHT - _BOTTOM - _TOP}" fill="{colour}" '
          f'opacity="0.13"/><rect x="{start:.1f}" y="{_TOP - 4}" '
          f'width="{stop - start:.1f}" height="4" fill="{colour}"/>'
          f'<text class="band" x="{(start + stop) / 2:.1f}" y="{_TOP - 10}">'
          f'{html.escape(label)}</text>')
      start = stop
    return "".join(drawn)

  def _axes(self) -> str:
    drawn, bottom = [], _HEIGHT - _BOTTOM
    power, octaves = 0, math.log2(self._high / self._low)
    stride = max(1, math.ceil(octaves / 9))
    while 2**power <= self._high:
      if 2**power >= self._low and power % stride == 0:
        x = self._x(2**power)
        drawn.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
                     f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - 22}">'
                     f'{spec_lib.format_bytes(2**power)}</text>')
      power += 1
    time = self._quick
    while time <= self._slow * 1.01:
      y = self._y(time)
      drawn.append(f'<path class="grid" d="M{_LEFT} {y:.1f}'
                   f'H{_WIDTH - _RIGHT}"/><text class="tick end" '
                   f'x="{_LEFT - 6}" y="{y + 4:.1f}">'
                   f'{wording.format_duration(time)}</text>')
      time *= 10
    drawn.append(f'<text class="tick" x="{_WIDTH / 2}" y="{_HEIGHT - 4}">'
                 'bytes of a tensor; the bars count tensors</text>')
    return "".join(drawn)

  def _histogram(self) -> str:
    """Tensors by half powers of two."""
    counts = collections.Counter(
        round(math.log2(size.num_bytes) * 2) for size in self._e.sizes
        if size.num_bytes)
    most = max(counts.values(), default=1)
    width = (self._x(self._low * 2) - _LEFT) / 2
    base = _HEIGHT - _BOTTOM + _BARS + 8
    drawn = []
    for half, count in counts.items():
      height = max(3, _BARS * math.log1p(count) / math.log1p(most) - 10)
      x = self._x(2 ** (half / 2))
      drawn.append(
          f'<rect class="count" x="{x - width * 0.4:.1f}" '
          f'y="{base - height:.1f}" width="{width * 0.8:.1f}" '
          f'height="{height:.1f}" rx="1"><title>{count} tensors</title></rect>'
          f'<text class="few" x="{x:.1f}" y="{base - height - 3:.1f}">{count}'
          '</text>')
    return "".join(drawn)

  def _draw_curves(self) -> str:
    drawn = []
    for i, (name, points) in enumerate(self._curves.items()):
      line = " ".join(f"{self._x(size):.1f},{self._y(time):.1f}"
                      for size, time in points if time)
      dash = ' stroke-dasharray="7 4"' if i >= 3 else ""
      drawn.append(f'<polyline class="curve" points="{line}" '
                   f'stroke="{self._names[name]}"{dash}>'
                   f'<title>{html.escape(name)}</title></polyline>')
    return "".join(drawn)


def _same(one: list[tuple[float, float]],
          two: list[tuple[float, float]]) -> bool:
  return all(math.isclose(a, b, rel_tol=0.02)
             for (_, a), (_, b) in zip(one, two, strict=True))


def _bands(e: explaining.Explanation) -> list[_Band]:
  if e.plan.is_pinned:  # It goes by no sizes.
    return []
  if not e.spec.is_auto:
    names = [line.alg if line.shards == 1 else f"{line.alg}#{line.shards}"
             for line in e.spec]
    return [_Band(name, None if line.limit == spec_lib.UNLIMITED
                  else line.limit, name)
            for name, line in zip(names, e.spec, strict=True)]
  names = [rule.algorithm if rule.shards == 1
           else f"{rule.algorithm}#{rule.shards}" for rule in e.rules]
  return [_Band(name, rule.limit, name + ", packed" * rule.pack)
          for name, rule in zip(names, e.rules, strict=True)]
