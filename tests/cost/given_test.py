"""Tests of the links as users give them, and of who takes them."""

from absl.testing import absltest
from absl.testing import parameterized

import tf_cdops
from tf_cdops import cost
from tf_cdops.base import errors
from tf_cdops.cost import given

_TWO = tf_cdops.Topology.grid(2, 2)
_OWN = cost.Network(cost.Link("a", 1, 2), cost.Link("b", 3, 4))
_FILE = """{"version": 1, "summary": {"inside": null, "across": {
    "latency_seconds": 2e-4, "bytes_per_second": 1.2e9}}}"""


class GivenTest(parameterized.TestCase):

  def test_a_name_is_the_link_between_workers(self):
    link = given.check("10gbe")
    self.assertEqual(link, cost.PRESETS["10gbe"])
    common = cost.Network.common(_TWO)
    found = given.resolve(link, _TWO)
    self.assertEqual((found.inside, found.across), (common.inside, link))

  def test_with_one_worker_it_is_the_one_between_devices(self):
    link, one = given.check("pcie"), tf_cdops.Topology.grid(1, 4)
    self.assertEqual(given.resolve(link, one).inside, link)

  def test_numbers_of_ones_own_and_none(self):
    self.assertIs(given.resolve(given.check(_OWN), _TWO), _OWN)
    self.assertEqual(given.resolve(given.check(None), _TWO),
                     cost.Network.common(_TWO))

  def test_a_file(self):
    path = self.create_tempfile("links.json", _FILE).full_path
    links = given.check(f"@{path}")
    self.assertEqual(links.across.bytes_per_second, 1.2e9)
    common = cost.Network.common(_TWO)
    found = given.resolve(links, _TWO)
    self.assertEqual((found.inside, found.across),
                     (common.inside, links.across))
    self.assertEqual(found.copied_bytes_per_second,
                     common.copied_bytes_per_second)
    self.assertEqual(given.uncommon(found, _TWO), links)

  def test_what_is_not_common(self):
    self.assertIsNone(given.uncommon(cost.Network.common(_TWO), _TWO))
    self.assertEqual(given.uncommon(_OWN, _TWO),
                     given.MeasuredLinks(_OWN.inside, _OWN.across))

  @parameterized.parameters((5,), ("tengbe",), (["10gbe"],))
  def test_what_is_wrong_is_said_by_all_who_take_it(self, wrong):
    for take in (given.check,
                 lambda network: tf_cdops.MultiWorkerAllReduce(
                     network=network),
                 lambda network: tf_cdops.explain("auto", _TWO, [4],
                                                  network=network)):
      with self.assertRaisesRegex(errors.InputError,
                                  r"^`network` \(.*\) must be .*10gbe"):
        take(wrong)

  def test_links_are_shown_and_heeded(self):
    slow = cost.Network(cost.PRESETS["memory"],
                        cost.Link("slow", 1e-4, 1e7, 1e-4))
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto", network=slow)
    self.assertIn("network=Network(inside=", repr(ops))
    hosts = tf_cdops.Topology.grid(4, 1, device_type="CPU")
    rules = lambda network: tf_cdops.explain(
        "auto", hosts, [64 << 20], network=network).rules
    self.assertNotEqual(rules(slow), rules("infiniband"))


if __name__ == "__main__":
  absltest.main()
