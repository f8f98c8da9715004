"""Opens the pages of `tf_cdops trace --html` in a real browser."""

import json
import pathlib
import re
import unittest

from absl.testing import absltest
from absl.testing import parameterized
from tests import chromium
from tests import timeline_events as made

from tf_cdops.cli.page import timeline as page
from tf_cdops.explaining.timeline import assembling
from tf_cdops.explaining.timeline import reading
from tf_cdops.explaining.timeline import summary
from tf_cdops.explaining.timeline import trace as trace_lib

# Runs in the page, which itself has no script, and tells what came of it.
_PROBE = f"<script>{chromium.OUTSIDE}" """
const svg = document.querySelector("svg.timeline");
document.body.dataset.seen = JSON.stringify({
  overflow: document.documentElement.scrollWidth - innerWidth,
  outside: outsideOf(svg, "text, rect"),
  rows: svg.querySelectorAll("g.row").length,
  bars: svg.querySelectorAll("g.row rect").length,
  wide: [...svg.querySelectorAll("g.row rect")].every(
      (bar) => bar.getBoundingClientRect().width > 0),
  bold: document.querySelectorAll("b.injected").length,
  heading: document.querySelector("h1").innerText});
</script>"""


def trace_of(names=("dense/kernel",)):
  bucket = trace_lib.Bucket(made.SCOPE, 0, "ps", 4096, names, 0.5)
  return assembling.assemble(
      [reading.read(made.one_step(1.0), 100.0, made.GRAPH)], [bucket],
      made.DEVICES, 3, (trace_lib.Clock("worker 1", 0.25, 0.5),))


def html_of(trace, title="A test"):
  return page.html(trace, summary.summarize(trace), title)


class PageTest(absltest.TestCase):

  def test_needs_nothing_else(self):
    self.assertNotRegex(html_of(trace_of()),
                        r"https?:|src=|@import|<link|<script|url\(")

  def test_escapes(self):
    html = html_of(trace_of(("<b class=injected>&",)), "<i>")
    self.assertNotIn("<b class=injected>", html)
    self.assertIn("<h1>&lt;i&gt;</h1>", html)

  def test_says_the_figures(self):
    html = html_of(trace_of())
    for words in ("exposed communication", "4,096", "dense/kernel",
                  "worker 1&#x27;s clock was moved ahead by 250 ms"):
      self.assertIn(words, html)


@unittest.skipUnless(chromium.PATH, "Chromium isn't installed")
class BrowserTest(parameterized.TestCase):

  @parameterized.parameters(1100, 500)
  def test_is_drawn_within_its_frame(self, width):
    path = pathlib.Path(self.create_tempdir().full_path) / "page.html"
    path.write_text(
        html_of(trace_of(("<b class=injected>bold</b>",))).replace(
            "</body>", f"{_PROBE}</body>"), encoding="utf-8")
    dom = chromium.run(self.create_tempdir().full_path, "--dump-dom",
                       f"--window-size={width},900", path.as_uri())
    found = re.search(r'data-seen="([^"]*)"', dom)
    self.assertIsNotNone(found, dom[-2000:])
    # Two devices and a bucket; each device has two kinds of bars.
    self.assertEqual(
        json.loads(found[1].replace("&quot;", '"')),
        {"overflow": 0, "outside": [], "rows": 3, "bars": 6, "wide": True,
         "bold": 0, "heading": "A test"})


if __name__ == "__main__":
  absltest.main()
