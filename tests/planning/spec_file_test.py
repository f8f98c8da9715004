"""Tests of the file that "@file.json" names."""

import copy
import json
import pickle

from absl.testing import absltest
from absl.testing import parameterized

import tf_cdops
from tf_cdops import cost
from tf_cdops.base import errors
from tf_cdops.cost import given
from tf_cdops.planning import packs
from tf_cdops.planning import spec
from tf_cdops.planning import spec_file

Line = tf_cdops.AllReduceSpecTuple
_ACROSS = {"latency_seconds": 2e-4, "bytes_per_second": 1.2e9,
           "message_seconds": 6e-5}


class SpecFileTest(parameterized.TestCase):

  def write(self, content):
    return self.create_tempfile("spec.json", content).full_path

  def test_reads_what_a_file_says(self):
    path = self.write(json.dumps({"all_reduce_spec": "ps:1k:xring#2",
                                  "measured": [1, 2]}))
    self.assertEqual(tf_cdops.parse_all_reduce_spec(f"@{path}"),
                     (Line("ps", 1, 1024), Line("xring", 2, -1)))

  @parameterized.parameters(
      ({}, None),
      ({"num_packs": 3}, packs.Packing(3)),
      ({"agg_small_grads_max_bytes": 4096, "agg_small_grads_max_group": 7},
       packs.Packing(0, 4096, 7)),
      ({"num_packs": 0, "agg_small_grads_max_bytes": 0}, packs.Packing()))
  def test_reads_packing(self, keys, packing):
    path = self.write(json.dumps({"all_reduce_spec": "ps:1k:xring"} | keys))
    parsed = tf_cdops.parse_all_reduce_spec(f"@{path}")
    self.assertEqual((str(parsed), parsed.packing, parsed.file),
                     ("ps:1k:xring", packing, path))
    self.assertIs(tf_cdops.parse_all_reduce_spec(parsed), parsed)
    for again in (pickle.loads(pickle.dumps(parsed)), copy.deepcopy(parsed)):
      self.assertEqual((again, again.packing, again.file),
                       (parsed, packing, path))

  def test_reads_a_wire(self):
    said = {"all_reduce_spec": "ps", "wire": "bfloat16", "wire_scope": "all"}
    parsed = spec.parse("@" + self.write(json.dumps(said)))
    self.assertEqual(str(parsed.wire_for(None, "across")), "bfloat16 (all)")
    self.assertEqual(str(parsed.wire_for("int8", "across")), "int8")
    for same in (pickle.loads(pickle.dumps(parsed)), parsed.without_packing(),
                 parsed.with_lines(spec.parse("xring"))):
      self.assertEqual(str(same.wire_for(None, "across")), "bfloat16 (all)")
    self.assertNotEqual(parsed, spec.parse("ps"))
    self.assertIsNone(spec.parse("ps").wire_for(None, "across"))
    self.assertIn("wire='bfloat16', wire_scope='all'", repr(
        tf_cdops.MultiWorkerAllReduce(all_reduce_spec=parsed)))

  def test_wrong_wires(self):
    path = self.write('{"all_reduce_spec": "ps", "wire": 16}')
    with self.assertRaisesRegex(
        ValueError, r"its 'wire' \(16\) and 'wire_scope' \('across'\) must be "
        "texts, such as .*; correct them, or leave them out"):
      spec.parse(f"@{path}")
    path = self.write('{"all_reduce_spec": "ps", "wire": "zip"}')
    with self.assertRaisesRegex(
        ValueError,
        rf"`all_reduce_spec` \('@{path}'\): `wire` \('zip'\) must "):
      tf_cdops.MultiWorkerAllReduce(all_reduce_spec=f"@{path}")

  def test_packing_makes_a_difference(self):
    text = "ps:1k:xring"
    packed, other, same = (
        spec.parse("@" + self.create_tempfile(content=json.dumps(
            {"all_reduce_spec": text, "num_packs": packs})).full_path)
        for packs in (2, 3, 2))
    plain = spec.parse(text)
    self.assertEqual(packed, same)
    self.assertEqual(hash(packed), hash(same))
    self.assertLen({packed, other, same, plain, tuple(plain)}, 3)
    for different in (other, plain, tuple(plain), text, None):
      self.assertNotEqual(packed, different)
    self.assertEqual(tuple(packed), plain)
    self.assertEqual(spec.AllReduceSpec(packed), plain)
    self.assertRegex(repr(packed),
                     r"^AllReduceSpec\('ps:1k:xring', Packing\(num_packs=2, ")
    with self.assertRaisesRegex(AttributeError, "packing"):
      packed.packing = None

  def test_reads_links(self):
    path = self.write(json.dumps({"all_reduce_spec": "auto",
                                  "links": {"inside": None,
                                            "across": _ACROSS}}))
    parsed = tf_cdops.parse_all_reduce_spec(f"@{path}")
    across = cost.Link("measured across", 2e-4, 1.2e9, 6e-5)
    self.assertEqual(parsed.network, given.MeasuredLinks(None, across))
    self.assertEqual(parsed.network.summary(),
                     {"inside": None, "across": _ACROSS})
    self.assertNotEqual(parsed, spec.parse("auto"))
    self.assertNotEqual(parsed, tuple(spec.parse("auto")))
    self.assertIn("Link(name='measured across'", repr(parsed))
    for again in (pickle.loads(pickle.dumps(parsed)), copy.deepcopy(parsed)):
      self.assertEqual(again, parsed)
      self.assertEqual(hash(again), hash(parsed))

  @parameterized.parameters(
      (3, r": its 'links' \(3\) must be an object with 'inside' and 'across'"),
      ({"across": None}, "must have 'inside' in its 'links', null if there "),
      ({"inside": None, "across": 5},
       r": its 'across' \(5\) must be null or an object with latency_"),
      ({"inside": None, "across": _ACROSS | {"bytes_per_second": 0}},
       r": 'bytes_per_second' \(0\) of its 'across' must be a number above 0"),
      ({"inside": _ACROSS | {"name": 5}, "across": None},
       r": 'name' \(5\) of its 'inside' must be a text"))
  def test_malformed_links(self, links, message):
    path = self.write(json.dumps({"all_reduce_spec": "ps", "links": links}))
    with self.assertRaisesRegex(
        errors.Error, rf"^`all_reduce_spec` \('@{path}'\).*{message}.*; "
        "correct it, leave 'links' out, or run `tf_cdops tune` again"):
      tf_cdops.parse_all_reduce_spec(f"@{path}")

  @parameterized.product(
      key=("num_packs", "agg_small_grads_max_bytes",
           "agg_small_grads_max_group"),
      value=(-1, "64k", True, None, 1.5, []))
  def test_malformed_packing(self, key, value):
    path = self.write(json.dumps({"all_reduce_spec": "ps", key: value}))
    with self.assertRaisesRegex(
        errors.SpecError,
        rf"^`all_reduce_spec` \('@{path}'\): its '{key}' \(.*\) must be a "
        rf"whole number of at least 0; correct it, or leave it out"):
      tf_cdops.parse_all_reduce_spec(f"@{path}")

  @parameterized.parameters(
      ("", "readable JSON file: Expecting value"),
      ("{", "readable JSON file: Expecting property name"),
      ("xring", "readable JSON file: Expecting value"),
      ("[]", "with the text of a spec under the key 'all_reduce_spec'"),
      ("{}", "with the text of a spec under the key 'all_reduce_spec'"),
      ('"xring"', "with the text of a spec under the key 'all_reduce_spec'"),
      ('{"all_reduce_spec": 5}', "with the text of a spec under the key"),
      ('{"all_reduce_spec": "@other.json"}', "with the text of a spec under"))
  def test_malformed_files(self, content, message):
    path = self.write(content)
    with self.assertRaisesRegex(
        errors.SpecError,
        rf"^`all_reduce_spec` \('@{path}'\) must name .*{message}"):
      tf_cdops.parse_all_reduce_spec(f"@{path}")

  @parameterized.parameters({"version": spec_file.FILE_VERSION}, {})
  def test_reads_its_own_format(self, **version):
    path = self.write(json.dumps(version | {"all_reduce_spec": "xring#2"}))
    self.assertEqual(str(spec.parse(f"@{path}")), "xring#2")

  @parameterized.parameters(
      (2, "2"), (0, "0"), ("1", "'1'"), (None, "None"), (True, "True"),
      ([], r"\[\]"))
  def test_other_formats(self, version, shown):
    path = self.write(json.dumps({"version": version,
                                  "all_reduce_spec": "xring#2"}))
    with self.assertRaisesRegex(
        errors.SpecError,
        rf"^`all_reduce_spec` \('@{path}'\) must have the format version 1, "
        rf"and it is {shown}; run `tf_cdops tune` again, or update"):
      tf_cdops.parse_all_reduce_spec(f"@{path}")

  @parameterized.parameters(
      ("xring#0", r"shards of 'xring' \(0\) must be"),
      ("", "has an empty part"),
      ("ps:1k:auto", "'auto' chooses algorithms"))
  def test_errors_in_a_file_name_it(self, text, message):
    path = self.write(json.dumps({"all_reduce_spec": text}))
    with self.assertRaisesRegex(errors.SpecError, f"{path}.*{message}"):
      tf_cdops.parse_all_reduce_spec(f"@{path}")

  @parameterized.parameters(
      ("@", "No such file"), ("@/no/such/file.json", "No such file"),
      ("@/", "Is a directory"), ("@\0", "embedded null byte"))
  def test_missing_files(self, given, message):
    with self.assertRaisesRegex(
        errors.SpecError,
        rf"^`all_reduce_spec` \('@.*'\) must name a readable JSON file: "
        rf".*{message}"):
      tf_cdops.parse_all_reduce_spec(given)


if __name__ == "__main__":
  absltest.main()
