"""Opens the pages of `tf_cdops explain --html` in a real browser."""

import json
import pathlib
import re
import unittest

from absl.testing import absltest
from absl.testing import parameterized
from tests import all_reduce_contract
from tests import chromium

from matplotlib import image
import numpy as np

from tf_cdops import explaining
from tf_cdops.cli.page import style
from tf_cdops.cli.page import writing

workers_of = all_reduce_contract.workers_of
_SIZES = [1024] * 50 + [65536] * 7 + [16 << 20] * 2
# Runs in the page, which itself has no script, and tells what came of it.
_PROBE = f"<script>{chromium.OUTSIDE}" """
const outside = [...document.querySelectorAll("svg")].flatMap(
    (svg) => outsideOf(svg, "text, rect, path.arrow, polyline"));
const count = (what) => document.querySelectorAll(what).length;
document.body.dataset.seen = JSON.stringify({
  overflow: document.documentElement.scrollWidth - innerWidth,
  outside, arrows: count(".schedule path.arrow"), curves: count(".curve"),
  schedules: count("svg.schedule"), bold: count("b.injected"),
  heading: document.querySelector("h1").innerText,
  frame: document.querySelector("svg.schedule").getBoundingClientRect(),
  background: getComputedStyle(document.body).backgroundColor});
</script>"""


def html_of(spec: str, *sizes: int, load: str = "a test", kind: str = "GPU"):
  e = explaining.explain(spec, workers_of(*sizes, kind=kind), _SIZES)
  return writing.html(e, load, e.plan.buckets[0])


class PageTest(parameterized.TestCase):

  def test_needs_nothing_else(self):
    html = html_of("auto", 2, 2)
    self.assertNotRegex(html, r"https?:|src=|@import|<link|<script")
    self.assertEqual(set(re.findall(r"url\(([^)]*)\)", html)),
                     {"#inside", "#across"})

  def test_escapes(self):
    html = html_of("ps", 2, load="<b class=injected>&")
    self.assertIn("&lt;b class=injected&gt;&amp;", html)
    self.assertNotIn("<b class=injected>", html)

  def test_a_pinned_plan(self):
    path = self.create_tempfile("plan.json").full_path
    explaining.explain("auto", workers_of(2, 2), _SIZES).save_plan(path)
    html = html_of(f"@{path}", 2, 2)
    self.assertIn(f"<h1><code>@{path}</code></h1>", html)
    self.assertIn(f"pinned by {path}", html)
    self.assertNotIn('class="band"', html)

  def test_says_that_fewer_are_drawn(self):
    self.assertIn("Drawn for 16 devices and 1 shard, fewer than there are.",
                  html_of("xring/xring", *[8] * 8))
    self.assertNotIn("fewer than there are", html_of("xring", 8))

  def test_one_device(self):
    self.assertIn("<h2>The plan</h2>", html_of("auto", 1))


@unittest.skipUnless(chromium.PATH, "Chromium isn't installed")
class BrowserTest(parameterized.TestCase):

  def chromium(self, *flags: str) -> str:
    return chromium.run(self.create_tempdir().full_path, *flags)

  def seen(self, html: str, width: int = 1100, *flags: str) -> dict:
    path = pathlib.Path(self.create_tempdir().full_path) / "page.html"
    path.write_text(html.replace("</body>", f"{_PROBE}</body>"),
                    encoding="utf-8")
    dom = self.chromium("--dump-dom", f"--window-size={width},900", *flags,
                        path.as_uri())
    found = re.search(r'data-seen="([^"]*)"', dom)
    self.assertIsNotNone(found, dom[-2000:])
    return json.loads(found[1].replace("&quot;", '"').replace("&lt;", "<")
                      .replace("&gt;", ">").replace("&amp;", "&"))

  @parameterized.parameters(
      # Arrows: 14 steps of 8 in a ring; 3 + 3 inside each of 2 workers of 4,
      # and 1 + 1 across, if leaders sum; 2 steps of 2 among 3.
      (("xring", 8), 1100, 14 * 8, 1), (("ps/ps", 4, 4), 1100, 14, 1),
      (("ps", 3), 500, 4, 1), (("xring#2", 16), 1100, 30 * 16, 1),
      (("xring:2k:ps:1m:rechd", 4), 1100, 6 * 4 + 6 + 4 * 4, 3),
      (("nccl/rechd", *[8] * 64), 1100, 4 * 4 + 4 * 3, 1))
  def test_is_drawn_within_its_frame(self, what, width, arrows, schedules):
    seen = self.seen(html_of(*what), width)
    self.assertEqual(
        (seen["overflow"], seen["outside"], seen["heading"], seen["arrows"],
         seen["schedules"]), (0, [], what[0], arrows, schedules))
    self.assertGreater(seen["curves"], 2)

  def test_nothing_is_injected(self):
    seen = self.seen(html_of("ps", 2, load="<b class=injected>bold</b>"))
    self.assertEqual(seen["bold"], 0)

  @parameterized.parameters(
      (("ps", 4), {"inside"}), (("ps/ps", 2, 2), {"inside", "across"}))
  def test_arrows_have_the_colours_of_their_links(self, what, links):
    html, width, height = html_of(*what), 1100, 2000
    frame = self.seen(html, width)["frame"]
    self.assertLess(frame["bottom"], height)
    folder = pathlib.Path(self.create_tempdir().full_path)
    (folder / "page.html").write_text(html, encoding="utf-8")
    self.chromium(f"--screenshot={folder / 'page.png'}",
                  f"--window-size={width},{height}",
                  (folder / "page.html").as_uri())
    page = image.imread(folder / "page.png")
    self.assertEqual(page.shape[:2], (height, width))
    drawn = page[int(frame["top"]):int(frame["bottom"]),
                 int(frame["left"]):int(frame["right"]), :3]
    self.assertEqual({link for link in ("inside", "across")
                      if _has_arrows_of(link, 255 * drawn)}, links)


def _has_arrows_of(link: str, drawn: np.ndarray) -> bool:
  """Whether a picture has the style's colour for arrows over such links."""
  # The first in the style is a light screen's; arrows let white shine through.
  opacity = float(re.search(r"\.arrow .*opacity: ([\d.]+)", style.CSS)[1])
  colour = bytes.fromhex(re.search(rf"--{link}: #(\w+);", style.CSS)[1])
  blended = opacity * np.array(list(colour)) + (1 - opacity) * 255
  return bool((np.abs(drawn - blended).max(axis=-1) < 8).sum() > 50)


if __name__ == "__main__":
  absltest.main()
