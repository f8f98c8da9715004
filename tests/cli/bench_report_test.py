"""Tests of what bench makes of its results: tables, JSON and charts."""

import argparse
import contextlib
import io
import json
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from matplotlib import figure

from tf_cdops.cli import bench_plot
from tf_cdops.cli import bench_report
from tf_cdops.cli.measuring import results
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import timing

_RATES = {"100mbit": 1e8, "300mbit": 3e8, "1gbit": 1e9}
_SITE = sites.Site(tuple(f"/job:worker/replica:0/task:{t}/device:CPU:0"
                         for t in range(2)), "100mbit")


def result(contender: str, median: float, num_bytes: int = 1 << 20,
           bandwidth: str | None = None, wrong: int = 0) -> results.Result:
  """Returns a result; with cables, the least is two seconds at 100mbit."""
  bits = _RATES[bandwidth] if bandwidth else None
  return results.Result(
      contender, not contender.startswith("TF"), num_bytes, num_bytes // 4,
      "float32", 1, 2, timing.Summary(median, median, median, 3, median,
                                      median),
      wrong, 0.1, 7, bandwidth, bits, 2e8 / bits if bits else None)


def at_rates() -> list[results.Result]:
  """"auto" takes twice the least at all rates, and "ps" ever more of it."""
  return [result(name, times * 2e8 / bits, bandwidth=text)
          for i, (text, bits) in enumerate(_RATES.items())
          for name, times in (("auto", 2), ("ps", 3 + i))]


class ChartTest(parameterized.TestCase):

  def draw(self, measured):
    """Returns the axes, and the text of the legend."""
    with mock.patch.object(figure.Figure, "savefig", autospec=True) as save:
      bench_plot.draw(measured, "a title", "chart.png")
    drawn = save.call_args.args[0]
    self.assertEqual(drawn.get_suptitle(), "a title")
    axes, = drawn.axes
    legend = axes.get_legend()
    return axes, [t.get_text() for t in legend.get_texts()] if legend else []

  def ticks(self, axis):
    return [label.get_text() for label in axis.get_ticklabels()]

  def test_over_rates(self):
    axes, legend = self.draw(at_rates())
    self.assertEqual(legend, ["ps", "auto", "least"])
    self.assertEqual(self.ticks(axes.xaxis), list(_RATES))
    self.assertEqual((axes.get_xscale(), axes.get_yscale()), ("log", "log"))
    self.assertEqual(axes.get_xlabel(), "rate of each worker's cable")
    drawn = {line.get_label(): line for line in axes.lines}
    for name, times in (("ps", (3, 4, 5)), ("auto", (2, 2, 2)),
                        ("least", (1, 1, 1))):
      self.assertEqual(list(drawn[name].get_xdata()), list(_RATES.values()))
      self.assertSequenceAlmostEqual(
          drawn[name].get_ydata(),
          [n * 2e11 / bits for n, bits in zip(times, _RATES.values(),
                                              strict=True)])
    self.assertEqual(drawn["least"].get_linestyle(), "--")

  @parameterized.parameters(None, "1gbit")
  def test_over_sizes(self, bandwidth):
    axes, legend = self.draw([
        result(name, times, size, bandwidth) for size in (1024, 4096)
        for name, times in (("TF default", 3), ("xring", 2))])
    self.assertEqual(legend, ["TF default", "xring",
                              *(["least"] if bandwidth else [])])
    self.assertEqual(self.ticks(axes.xaxis), ["1k", "4k"])
    self.assertEqual(axes.get_xlabel(), "bytes a replica")

  def test_a_least_far_below_does_not_flatten_the_rest(self):
    axes, _ = self.draw([
        result("ps", 50, size, "1gbit") for size in (1024, 4096)])
    self.assertEqual(axes.get_ylim()[0], 50e3 / 4)

  @parameterized.parameters(None, "300mbit")
  def test_bars(self, bandwidth):
    axes, legend = self.draw([result("ps", 4, 1024, bandwidth),
                              result("auto", 3, 1024, bandwidth, wrong=1)])
    self.assertEqual(self.ticks(axes.yaxis), ["ps", "auto (WRONG)"])
    self.assertEqual([bar.get_width() for bar in axes.patches], [4e3, 3e3])
    self.assertEqual(legend, ["least"] if bandwidth else [])
    for line in axes.lines:
      if line.get_label() == "least":
        self.assertSequenceAlmostEqual(line.get_xdata(), [2e3 / 3] * 2)
        self.assertEqual(line.get_linestyle(), "--")


class ReportTest(absltest.TestCase):

  def report(self, measured, load="16m", **flags):
    """Returns what is printed, and the chart's title."""
    args = argparse.Namespace(**{
        "json": False, "eager": False, "out": None, "plot": "x.png",
        "bandwidth": None} | flags)
    printed = io.StringIO()
    with (mock.patch.object(bench_plot, "draw") as draw,
          contextlib.redirect_stdout(printed)):
      bench_report.report(args, _SITE,
                          bench_report.Outcome(measured, load=load))
    return printed.getvalue(), draw.call_args.args[1]

  def test_a_table_for_each_rate(self):
    text, title = self.report(at_rates())
    self.assertContainsInOrder(
        [f"2 workers with cables of {rate}, in a tf.function"
         for rate in _RATES], text)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]]
             for line in text.splitlines() if line.startswith("│")]
    load = ["1m: 262,144 float32", *[""] * 7]
    self.assertEqual([row for row in cells if not row[1]], [load] * 3)
    self.assertEqual(
        [(row[0], row[7]) for row in cells if row[1]],
        [("auto", "2.00"), ("ps", "3.00"), ("auto", "2.00"), ("ps", "4.00"),
         ("auto", "2.00"), ("ps", "5.00")])
    self.assertEqual(text.count("of least"), 3)
    self.assertEqual(title, "All-reduce of 16m among 2 CPU devices of 2 "
                     "workers")

  def test_one_rate(self):
    text, title = self.report(at_rates()[:2], load=None)
    self.assertEqual(text.count("of least"), 1)
    self.assertEqual(title, "All-reduce among 2 CPU devices of 2 workers with "
                     "cables of 100mbit")

  def test_without_cables(self):
    text, _ = self.report([result("auto", 1)])
    self.assertNotIn("of least", text)
    self.assertIn("#wrong", text)

  def test_json(self):
    text, _ = self.report(at_rates(), json=True, bandwidth="1gbit,…")
    content = json.loads(text)
    self.assertEqual(content["bandwidth"], "1gbit,…")
    self.assertEqual(
        [(r["bandwidth"], r["bits_per_second"], r["least_seconds"])
         for r in content["results"][::2]],
        [(rate, bits, 2e8 / bits) for rate, bits in _RATES.items()])


if __name__ == "__main__":
  absltest.main()
