"""Tests of what is measured of links, and of what is made of it."""

import collections
import contextlib
import io
import json

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process

import tf_cdops
from tf_cdops.cli import links_report
from tf_cdops.cli.measuring import link_results
from tf_cdops.cli.measuring import links
from tf_cdops.cli.measuring import sites

_MEASURE = """
    import dataclasses, json
    from tf_cdops.cli.measuring import links
    from tf_cdops.cli.measuring import sites
    site = sites.running_cluster({!r})
    print(json.dumps([dataclasses.asdict(link)
                      for link in links.measure(site, seconds=2)]))
    """


def device(worker, index=0):
  return f"/job:worker/replica:0/task:{worker}/device:CPU:{index}"


def site_of(workers, devices=1):
  return sites.Site(tuple(device(w, d) for w in range(workers)
                          for d in range(devices)))


def links_among(workers, rate=lambda source, target: 1e9):
  return [link_results.LinkMeasurement(device(s), device(t), 1e-4, rate(s, t))
          for s in range(workers) for t in range(workers) if s != t]


class MeasureTest(absltest.TestCase):

  def test_two_workers_of_two_devices(self):
    with tf_cdops.LocalCluster(2, 2) as cluster:
      done = python_process.run_script(
          _MEASURE.format(",".join(cluster.as_dict()["worker"])))
    self.assertEqual(done.returncode, 0, done.stderr)
    found = [link_results.LinkMeasurement(**link)
             for link in json.loads(done.stdout)]
    self.assertEqual(
        [(link.source, link.target) for link in found],
        [(device(0), device(1)), (device(1), device(0)),
         (device(0), device(0, 1)), (device(0, 1), device(0)),
         (device(1), device(1, 1)), (device(1, 1), device(1))])
    for link in found:
      self.assertGreater(link.latency_seconds, 0)
      self.assertGreater(link.bytes_per_second, 0)
    self.assertEqual([link.message_seconds is None for link in found],
                     [False, False, False, True, False, True])
    self.assertEqual([link.busy_bytes_per_second is None for link in found],
                     [False, False, True, True, True, True])
    self.assertGreater(found[0].busy_bytes_per_second, 0)


class PairsTest(parameterized.TestCase):

  @parameterized.parameters((1, 0), (2, 2), (3, 6), (8, 56), (9, 63), (20, 60),
                            (64, 64))
  def test_all_of_few_and_as_many_for_each_of_many(self, workers, count):
    pairs = links._across(site_of(workers))
    self.assertLen({(pair.source, pair.target) for pair in pairs}, count)
    self.assertLen(pairs, count)
    for end in ("source", "target"):
      times = collections.Counter(getattr(pair, end) for pair in pairs)
      self.assertLen(set(times.values()), min(count, 1))
    self.assertTrue(all(p.source != p.target and p.source == p.source_worker
                        for p in pairs))

  def test_inside_workers_of_several_devices(self):
    pairs = links._inside(site_of(2, 3))
    self.assertEqual([(pair.source, pair.target) for pair in pairs],
                     [(0, 1), (1, 0), (3, 4), (4, 3)])
    self.assertEmpty(links._inside(site_of(4)))

  def test_one_device_has_no_links(self):
    self.assertEqual(links.measure(site_of(1)), ())

  def test_rate(self):
    self.assertEqual(links._rate(1016, 1.0, 3.0), 2000)
    # A large tensor that is as quick as a small one: no division by nothing.
    self.assertEqual(links._rate(1016, 2.0, 2.0), 20000)


class SlowTest(parameterized.TestCase):

  def test_none(self):
    self.assertEmpty(link_results.find_slow(links_among(4)))
    self.assertEmpty(link_results.find_slow([]))

  @parameterized.parameters(3, 4, 8)
  def test_a_worker_that_receives_slowly(self, workers):
    self.assertEqual(
        link_results.find_slow(links_among(
            workers, lambda _, target: 1e8 if target == 2 else 1e9)),
        ["worker 2 receives at 0.10 of the median"])

  @parameterized.parameters(3, 4, 8)
  def test_a_worker_that_is_slow_both_ways(self, workers):
    self.assertEqual(
        link_results.find_slow(links_among(
            workers, lambda *ends: 2e8 if 1 in ends else 1e9)),
        ["worker 1 sends at 0.20 of the median",
         "worker 1 receives at 0.20 of the median"])

  def test_a_pair_alone(self):
    self.assertEqual(
        link_results.find_slow(links_among(
            4, lambda *ends: 1e8 if ends == (0, 3) else 1e9)),
        ["worker 0 to worker 3 has 0.10 of what both do with others"])


class ReportTest(absltest.TestCase):

  def shown(self, measured):
    with contextlib.redirect_stdout(io.StringIO()) as text:
      links_report.show(measured)
    return text.getvalue()

  def test_summary_has_medians(self):
    inside = [link_results.LinkMeasurement(device(0), device(0, 1), *numbers)
              for numbers in ((1.0, 10.0, 0.5), (3.0, 30.0), (2.0, 90.0, 0.7))]
    self.assertEqual(link_results.summarize(inside), {
        "inside": {"latency_seconds": 2.0, "bytes_per_second": 30.0,
                   "message_seconds": 0.6, "alone_bytes_per_second": 30.0},
        "across": None})

  def test_all_at_once(self):
    busy = [link_results.LinkMeasurement(device(w), device((w + 1) % 4), 1e-4,
                                         1e8, 0.0, rate)
            for w, rate in enumerate((4e7, 5e7, 6e7, 2e8))]
    across = link_results.summarize([*busy, *links_among(4, lambda *_: 1e8)])[
        "across"]
    self.assertEqual((across["bytes_per_second"],
                      across["alone_bytes_per_second"]), (5.5e7, 1e8))
    self.assertIn("SHARED: when all workers send at once, each has 0.55 of "
                  "what one alone has: the switch", self.shown(busy))
    # More than alone is nothing but noise.
    self.assertEqual(link_results.summarize(busy[3:])["across"][
        "bytes_per_second"], 1e8)
    self.assertNotIn("SHARED", self.shown(busy[3:]))

  def test_few_workers_are_a_matrix(self):
    text = self.shown(links_among(3, lambda s, t: 1e6 * (10 * s + t + 1)))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]]
            for line in text.splitlines() if line.startswith("│")]
    self.assertEqual(rows, [
        ["worker 0", "-", "100 / 2", "100 / 3"],
        ["worker 1", "100 / 11", "-", "100 / 13"],
        ["worker 2", "100 / 21", "100 / 22", "-"]])
    self.assertIn("SLOW: worker 0 sends at 0.23 of the median.\n", text)
    self.assertIn("Medians across workers: 100 µs, 12 MB/s, and 0 µs for each "
                  "further message at once.\n", text)

  def test_many_workers_are_a_list(self):
    text = self.shown(links_among(9))
    self.assertRegex(text, "│ worker 8 │ worker 7 │ 100 / 1000 │")


if __name__ == "__main__":
  absltest.main()
