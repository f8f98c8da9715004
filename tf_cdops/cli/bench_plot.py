"""Draws what bench measured: time over sizes or rates, or bars for one load.

With cables of a known rate, a dashed line shows the least that any all-reduce
can take.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tf_cdops.base import errors
from tf_cdops.planning import spec as spec_lib

if TYPE_CHECKING:
  from tf_cdops.cli.measuring import results as results_lib

_FORMATS = (".pdf", ".png", ".svg")
# Okabe and Ito's palette, which colour-blind readers can tell apart.
_OURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_THEIRS = ("#444444", "#777777", "#A0A0A0", "#C4C4C4")
_MARKERS = "osD^vP*X"
_MARGIN = 0.25  # How far below the quickest a chart may reach.
_LEAST: dict[str, Any] = {"color": "black", "linewidth": 1.2,
                          "linestyle": "--", "label": "least"}

_ByContender = Mapping[str, "Sequence[results_lib.Result]"]


def check(path: str) -> None:
  """Raises if there is no way to draw into that file."""
  if os.path.splitext(path)[1].lower() not in _FORMATS:
    raise errors.InputError(
        f"`--plot` ({path!r}) must end with {', '.join(_FORMATS)}.")
  try:
    import matplotlib  # noqa: F401
  except ModuleNotFoundError:
    raise errors.InputError(
        f"`--plot` ({path!r}) needs matplotlib; install it with "
        "`pip install 'tf-cdops[plot]'`.") from None


def draw(results: "Sequence[results_lib.Result]", title: str,
         path: str) -> None:
  """Writes the chart."""
  import matplotlib
  matplotlib.use("Agg")  # There may be no screen.
  from matplotlib import pyplot
  figure, axes = pyplot.subplots(figsize=(10, 6), layout="constrained")
  by_contender: dict[str, list[results_lib.Result]] = {}
  for result in results:
    by_contender.setdefault(result.contender, []).append(result)
  if len({result.bandwidth for result in results}) > 1:
    _draw_lines(axes, by_contender, lambda r: r.bits_per_second,
                lambda r: str(r.bandwidth))
    axes.set_xlabel("rate of each worker's cable")
  elif len({result.num_bytes for result in results}) > 1:
    _draw_lines(axes, by_contender, lambda r: r.num_bytes,
                lambda r: spec_lib.format_bytes(r.num_bytes))
    axes.set_xlabel("bytes a replica")
  else:
    _draw_bars(axes, by_contender)
  figure.suptitle(title, x=0.01, ha="left", fontweight="bold", wrap=True)
  axes.spines[["top", "right"]].set_visible(False)
  axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
  axes.set_axisbelow(True)
  try:
    figure.savefig(path, dpi=150)
  except OSError as error:
    raise errors.InputError(
        f"`--plot` ({path!r}) must be writable: {error.strerror}.") from None
  finally:
    pyplot.close(figure)


def _draw_lines(axes: Any, by_contender: _ByContender,
                x_of: "Callable[[results_lib.Result], Any]",
                text_of: "Callable[[results_lib.Result], str]") -> None:
  """One line each.

  Args:
    axes: where to.
    by_contender: their results, in the order of `x_of`.
    x_of: returns where a result is on the x axis.
    text_of: returns what the tick there says.
  """
  from matplotlib import ticker
  styles = _styles(by_contender)
  # The legend is in the order of the lines' right ends.
  for name, results in sorted(by_contender.items(),
                              key=lambda item: -item[1][-1].time.median):
    axes.plot([x_of(result) for result in results],
              [result.time.median * 1e3 for result in results],
              label=_label(name, results), markersize=5, **styles[name])
  at = {x_of(result): result for results in by_contender.values()
        for result in results}
  least = {x: result.least_seconds * 1e3 for x, result in sorted(at.items())
           if result.least_seconds}
  if least:
    axes.plot(list(least), list(least.values()), **_LEAST)
  axes.set_xscale("log", base=2)
  axes.set_xticks(list(at), [text_of(result) for result in at.values()])
  axes.set_yscale("log")
  # For small loads the least is far below all that was measured.
  bottom = _MARGIN * min(result.time.median * 1e3 for results
                         in by_contender.values() for result in results)
  if min(least.values(), default=bottom) < bottom:
    axes.set_ylim(bottom=bottom)
  axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  axes.yaxis.set_major_formatter("{x:g}")
  axes.minorticks_off()
  axes.set_ylabel("ms a step, median")
  _add_legend(axes)


def _draw_bars(axes: Any, by_contender: _ByContender) -> None:
  """One bar each, the quickest on top, with a line from min to p99."""
  styles = _styles(by_contender)
  ranked = sorted((results[0] for results in by_contender.values()),
                  key=lambda result: -result.time.median)
  for row, result in enumerate(ranked):
    median = result.time.median * 1e3
    axes.barh(row, median, color=styles[result.contender]["color"],
              height=0.65)
    axes.plot([result.time.least * 1e3, result.time.p99 * 1e3], [row, row],
              color="black", linewidth=1)
    axes.annotate(f"{median:.3g}", (max(median, result.time.p99 * 1e3), row),
                  (6, 0), textcoords="offset points", va="center")
  axes.set_yticks(range(len(ranked)),
                  [_label(r.contender, [r]) for r in ranked])
  axes.set_xlabel("ms a step: median; line, min to p99")
  axes.margins(x=0.1)  # Room for the numbers.
  if ranked[0].least_seconds:
    axes.axvline(ranked[0].least_seconds * 1e3, **_LEAST)
    _add_legend(axes)


def _add_legend(axes: Any) -> None:
  axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _label(name: str, results: "Sequence[results_lib.Result]") -> str:
  return f"{name} (WRONG)" if any(r.wrong for r in results) else name


def _styles(by_contender: _ByContender) -> dict[str, dict[str, Any]]:
  """Colours and solid lines for ours, greys and dashes for others."""
  from tf_cdops.cli.measuring import steps
  ours, theirs = itertools.count(), itertools.count()
  styles: dict[str, dict[str, Any]] = {}
  for name, results in by_contender.items():
    if name == steps.FLOOR:
      styles[name] = {"color": "black", "linewidth": 1.2, "linestyle": ":"}
    elif results[0].ours:
      i = next(ours)
      styles[name] = {"color": _OURS[i % len(_OURS)], "linewidth": 2,
                      "marker": _MARKERS[i % len(_MARKERS)]}
    else:
      i = next(theirs)
      styles[name] = {"color": _THEIRS[i % len(_THEIRS)], "linewidth": 1.3,
                      "linestyle": "--", "marker": _MARKERS[-1 - i]}
  return styles
