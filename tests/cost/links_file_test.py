"""Tests of reading links as they were measured."""

import copy
import json

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops import cost
from tf_cdops.base import errors

_ACROSS = {"latency_seconds": 2e-4, "bytes_per_second": 1.2e9,
           "message_seconds": 6e-5}
_CONTENT = {"version": 1, "summary": {"inside": None, "across": _ACROSS}}


class LinksFileTest(parameterized.TestCase):

  def read(self, content, *args):
    text = content if isinstance(content, str) else json.dumps(content)
    path = self.create_tempfile("links.json", text).full_path
    return cost.network_from_file(path, *args)

  def test_what_was_measured(self):
    both = {"summary": {"inside": {"latency_seconds": 0,
                                   "bytes_per_second": 5}, "across": _ACROSS}}
    self.assertEqual(
        self.read(both),
        cost.Network(cost.Link("measured inside", 0.0, 5.0, 0.0),
                     cost.Link("measured across", 2e-4, 1.2e9, 6e-5), 5e9))

  def test_what_was_not(self):
    self.assertEqual(self.read(_CONTENT).inside, cost.PRESETS["memory"])
    given = cost.Network(cost.PRESETS["pcie"], cost.PRESETS["10gbe"], 7.0)
    network = self.read(_CONTENT, given)
    self.assertEqual(network.copied_bytes_per_second, 7.0)
    self.assertEqual((network.inside.name, network.across.name),
                     ("pcie", "measured across"))

  @parameterized.parameters(
      ("{", "must be a readable JSON file: Expecting .*; measure again with"),
      ([1], "must be a JSON object with the object 'summary'; measure again"),
      ({"summary": 3}, "must be a JSON object with the object 'summary'"),
      (_CONTENT | {"version": 2},
       "must have the format version 1, and it is 2; .*, or update tf_cdops"),
      ({"summary": {"across": _ACROSS}},
       "must have 'inside' in its 'summary', null if there are no such links"),
      ({"summary": {"inside": 3, "across": None}},
       r": its 'inside' \(3\) must be null or an object with latency_"))
  def test_bad_file(self, content, message):
    with self.assertRaisesRegex(
        errors.InputError, rf"^`path` \('.*links.json'\).*{message}"):
      self.read(content)

  @parameterized.parameters(
      ("bytes_per_second", 0, "above 0"), ("bytes_per_second", None, "above 0"),
      ("bytes_per_second", float("inf"), "above 0"),
      ("latency_seconds", -1, "of at least 0"),
      ("latency_seconds", float("nan"), "of at least 0"),
      ("message_seconds", "1", "of at least 0"),
      ("message_seconds", True, "of at least 0"))
  def test_bad_number(self, key, value, rule):
    content = copy.deepcopy(_CONTENT)
    content["summary"]["across"][key] = value
    with self.assertRaisesRegex(
        errors.InputError, rf"'{key}' \({value!r}\) of its 'across' must be a "
        f"number {rule}; measure again with `tf_cdops doctor --cluster"):
      self.read(content)

  def test_no_file(self):
    with self.assertRaisesRegex(
        errors.InputError, r"^`--network` \('no.json'\) must be a readable "
        "JSON file: .*No such file"):
      cost.network_from_file("no.json", None, "--network")


if __name__ == "__main__":
  absltest.main()
