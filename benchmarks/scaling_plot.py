"""Draws how nodes, build time and step time of "auto" grow."""

from collections.abc import Sequence
from typing import Any

_QUANTITIES = (("nodes", "nodes", 1.0), ("build_seconds", "build ms", 1e3),
               ("median", "step ms", 1e3))
_COLOUR = "#0072B2"  # Okabe and Ito's blue.


def draw(points: Sequence[dict[str, Any]], path: str) -> bool:
  """Writes the chart; returns whether there is a matplotlib to do so."""
  try:
    import matplotlib
  except ModuleNotFoundError:
    return False
  matplotlib.use("Agg")  # There may be no screen.
  from matplotlib import pyplot
  auto = [one for one in points if one["spec"] == "auto"]
  figure, grid = pyplot.subplots(2, len(_QUANTITIES), figsize=(9, 5),
                                 layout="constrained", squeeze=False)
  for row, (axis, fixed) in zip(grid, (("devices", "tensors"),
                                       ("tensors", "devices")), strict=True):
    value, series = _longest(auto, fixed)
    series.sort(key=lambda one: one[axis])
    for axes, (field, label, scale) in zip(row, _QUANTITIES, strict=True):
      axes.plot([one[axis] for one in series],
                [one[field] * scale for one in series],
                color=_COLOUR, marker="o", markersize=4)
      axes.set_xlabel(f"{axis}, with {value} {fixed}")
      axes.set_ylabel(label)
      axes.set_ylim(bottom=0)
      axes.set_xlim(left=0)
      axes.spines[["top", "right"]].set_visible(False)
  figure.suptitle('What "auto" costs as sizes grow', fontweight="bold")
  figure.savefig(path, dpi=80)
  pyplot.close(figure)
  return True


def _longest(points: Sequence[dict[str, Any]], fixed: str
             ) -> tuple[int, list[dict[str, Any]]]:
  """Returns the value of `fixed` that most points share, and those points."""
  by_value: dict[int, list[dict[str, Any]]] = {}
  for one in points:
    by_value.setdefault(one[fixed], []).append(one)
  return max(by_value.items(), key=lambda item: len(item[1]),
             default=(0, []))
