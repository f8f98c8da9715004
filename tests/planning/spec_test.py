"""Tests of the all-reduce spec's grammar."""

import hypothesis
from absl.testing import absltest
from absl.testing import parameterized
from hypothesis import strategies as st

import tf_cdops
from tf_cdops.base import errors
from tf_cdops.planning import spec

Line = tf_cdops.AllReduceSpecTuple
_K, _M, _G = 2**10, 2**20, 2**30

_NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,6}", fullmatch=True).filter(
    lambda name: name != spec.AUTO)
_ALGORITHMS = _NAMES | st.builds("{}/{}".format, _NAMES, _NAMES)
_SHARDS = st.integers(1, 1 << 16)
_LIMITS = st.integers(1, 2**50) | st.builds(
    lambda number, unit: number * unit, st.integers(1, 5000),
    st.sampled_from([_K, _M, _G]))


@st.composite
def specs(draw):
  limits = sorted(draw(st.sets(_LIMITS, max_size=4)))
  return [Line(draw(_ALGORITHMS), draw(_SHARDS), limit)
          for limit in (*limits, -1)]


class SpecTest(parameterized.TestCase):

  @parameterized.parameters(
      ("xring", [("xring", 1, -1)]),
      ("xring#3", [("xring", 3, -1)]),
      ("pscpu/pscpu#2", [("pscpu/pscpu", 2, -1)]),
      ("nccl#2:32k:pscpu/pscpu#2", [("nccl", 2, 32 * _K),
                                    ("pscpu/pscpu", 2, -1)]),
      ("a:1:b:2k:c:3m:d:4g:e", [("a", 1, 1), ("b", 1, 2 * _K), ("c", 1, 3 * _M),
                                ("d", 1, 4 * _G), ("e", 1, -1)]),
      ("a:1K:b:1M:c:1G:d", [("a", 1, _K), ("b", 1, _M), ("c", 1, _G),
                            ("d", 1, -1)]),
      (" a : 1k : b#2 ", [("a", 1, _K), ("b", 2, -1)]),
      ("a#007:010:b", [("a", 7, 10), ("b", 1, -1)]),
      ("auto", [("auto", 1, -1)]),
      (("xring",), [("xring", 1, -1)]),
      (("xring", 2), [("xring", 2, -1)]),
      (("xring", 2, -1), [("xring", 2, -1)]),
      (Line("xring", 2, -1), [("xring", 2, -1)]),
      ([("xring",)], [("xring", 1, -1)]),
      ([("a", 2, 10), ("b", 1, 20), ("c",)], [("a", 2, 10), ("b", 1, 20),
                                              ("c", 1, -1)]),
      ((("a", 1, 10), Line("b", 3, -1)), [("a", 1, 10), ("b", 3, -1)]))
  def test_forms(self, given, lines):
    parsed = spec.parse(given)
    self.assertEqual(parsed, tuple(lines))
    for line in parsed:
      self.assertIsInstance(line, Line)
    self.assertIs(spec.parse(parsed), parsed)

  @hypothesis.settings(deadline=None, derandomize=True, database=None)
  @hypothesis.given(specs())
  def test_text_round_trips(self, lines):
    parsed = spec.parse(lines)
    self.assertEqual(parsed, tuple(lines))
    self.assertEqual(spec.parse(str(parsed)), parsed)
    self.assertEqual(str(spec.parse(str(parsed))), str(parsed))
    self.assertEqual(repr(parsed), f"AllReduceSpec({str(parsed)!r})")

  @parameterized.parameters(
      ("xring#1", "xring"), ("a:1024:b", "a:1k:b"), ("a:1025:b", "a:1025:b"),
      ("a:1048576:b#2", "a:1m:b#2"), ("a:1024m:b", "a:1g:b"),
      ("a:1024g:b", "a:1024g:b"))
  def test_text_is_the_shortest(self, given, text):
    self.assertEqual(str(spec.parse(given)), text)

  @parameterized.parameters(
      (0, "small"), (1, "small"), (10, "small"), (11, "middle"),
      (_K, "middle"), (_K + 1, "large"), (2**60, "large"), (None, "large"))
  def test_line_for_a_size(self, num_bytes, alg):
    parsed = spec.parse("small:10:middle:1k:large")
    self.assertEqual(parsed.line_for(num_bytes).alg, alg)

  def test_auto(self):
    self.assertTrue(spec.parse("auto").is_auto)
    self.assertFalse(spec.parse("xring").is_auto)

  def test_public_parser_knows_the_names(self):
    parsed = tf_cdops.parse_all_reduce_spec("nccl#2:32k:pscpu/pscpu#2")
    self.assertEqual(parsed, (Line("nccl", 2, 32 * _K),
                              Line("pscpu/pscpu", 2, -1)))
    self.assertEqual(str(parsed), "nccl#2:32k:pscpu/pscpu#2")
    self.assertTrue(tf_cdops.parse_all_reduce_spec("auto").is_auto)


_EMPTY_PART = "has an empty part; the form is alg"
_NOT_A_SPEC = (r"must be a text, a tuple \(algorithm, shards, limit\) or a "
               r"list of such tuples; the text's form is alg\[#shards\]")
_NOT_A_TUPLE = r"must be a tuple of one to three: \(algorithm, shards, limit\)"
_BAD_PART = "must be an algorithm's name, or the name, '#' and a whole number"
_BAD_SHARDS = "must be a whole number from 1 to 65,536"
_BAD_LIMIT = "must be a positive number of bytes, or -1 for no limit"
_MUST_RISE = r"the limits \(\[.*\]\) must rise, and only the last may be -1"
_NO_END = r"must be -1, so that there is an algorithm for every size"
_ALONE = r"'auto' chooses algorithms, shards and limits itself; it must stand "


class BadSpecTest(parameterized.TestCase):

  def assert_refused(self, given, message):
    with self.assertRaisesRegex(errors.SpecError,
                                f"(?s)^`[^`]*all_reduce_spec.*{message}"):
      tf_cdops.parse_all_reduce_spec(given)

  @parameterized.parameters(
      ("", _EMPTY_PART), (" ", _EMPTY_PART), (":", _EMPTY_PART),
      ("xring:", _EMPTY_PART), (":xring", _EMPTY_PART),
      ("xring::ps", _EMPTY_PART), ("xring:1k:", _EMPTY_PART),
      ("nccl:32k", r"must end with an algorithm: nothing follows the limit "
       r"'32k'"),
      ("xring:ps:1k", r"\('ps'\) must be a number of bytes such as 512, 32k"),
      ("xring:1t:ps", r"\('1t'\) must be a number of bytes"),
      ("xring:1.5k:ps", r"\('1\.5k'\) must be a number of bytes"),
      ("xring:-1:ps", r"\('-1'\) must be a number of bytes"),
      ("xring:k:ps", r"\('k'\) must be a number of bytes"),
      ("xring:1 k:ps", r"\('1 k'\) must be a number of bytes"),
      ("xring:1kb:ps", r"\('1kb'\) must be a number of bytes"),
      ("xring#", _BAD_PART), ("#2", _BAD_PART), ("xring#x", _BAD_PART),
      ("xring#2#3", _BAD_PART), ("xring#1.5", _BAD_PART),
      ("xring#2k", _BAD_PART), ("xring# 2", _BAD_PART),
      ("xring#0", rf"shards of 'xring' \(0\) {_BAD_SHARDS}"),
      ("xring#-1", rf"shards of 'xring' \(-1\) {_BAD_SHARDS}"),
      ("xring:0:ps", rf"limit of 'xring' \(0\) {_BAD_LIMIT}"),
      ("xring:1k:ps:1024:rechd", _MUST_RISE), ("xring:2:ps:1:ps", _MUST_RISE),
      ("auto#2", _ALONE), ("auto:1k:ps", _ALONE), ("ps:1k:auto", _ALONE))
  def test_text(self, given, message):
    self.assert_refused(given, message)

  @parameterized.parameters(
      (("xring", 0), _BAD_SHARDS), (("xring", -2), _BAD_SHARDS),
      (("xring", 1.0), rf"\(1\.0\) {_BAD_SHARDS}"), (("xring", "2"),
                                                     _BAD_SHARDS),
      (("xring", None), _BAD_SHARDS), (("xring", True), _BAD_SHARDS),
      (("xring", 1, 0), _BAD_LIMIT), (("xring", 1, -2), _BAD_LIMIT),
      (("xring", 1, "1k"), _BAD_LIMIT), (("xring", 1, 1.0), _BAD_LIMIT),
      (("xring", 1, None), _BAD_LIMIT),
      (("xring", 1, 100), rf"the last limit \(100\) {_NO_END}"),
      ([("xring", 1, 10), ("ps", 1, 20)], _NO_END),
      ([("xring", 1, -1), ("ps", 1, -1)], _MUST_RISE),
      ([("xring", 1, 20), ("ps", 1, 10), ("ps",)], _MUST_RISE),
      (("", 1, -1), r"the algorithm \(''\) must be a name"),
      ([(5, 1, -1)], r"the algorithm \(5\) must be a name"),
      (("auto", 2), _ALONE), ([("auto", 1, 10), ("ps",)], _ALONE),
      (("xring", 1, -1, 0), _NOT_A_TUPLE),
      ([("xring", 1, -1, 0)], _NOT_A_TUPLE),
      ([()], _NOT_A_TUPLE), (["xring"], _NOT_A_TUPLE),
      ([("xring", 1, 10), "ps"], rf"\[1\]` \('ps'\) {_NOT_A_TUPLE}"),
      ([["xring", 1, -1]], _NOT_A_TUPLE), ([None], _NOT_A_TUPLE),
      ([], _NOT_A_SPEC), ((), _NOT_A_SPEC), ({}, _NOT_A_SPEC),
      ({"xring": 1}, _NOT_A_SPEC), (5, _NOT_A_SPEC), (None, _NOT_A_SPEC),
      (b"xring", _NOT_A_SPEC), ({"xring"}, _NOT_A_SPEC))
  def test_tuples_and_others(self, given, message):
    self.assert_refused(given, message)

  @parameterized.parameters(
      ("xrign", r"\('xrign'\) .* Did you mean 'xring'"),
      ("ps:1k:nclc#2", r"\('nclc'\) .* Did you mean 'nccl'"),
      ("ps/xrign", r"\('xrign'\) .* Did you mean 'xring'"),
      ("auto/ps", r"\('auto'\) must be one of "),
      ([("a#2", 1, -1)], r"\('a#2'\) must be one of "),
      (("ps:1k:ps",), r"\('ps:1k:ps'\) must be one of "),
      ("ps/ps/ps", "must be one name or a pair 'intra/inter'"))
  def test_names(self, given, message):
    with self.assertRaisesRegex(errors.AlgorithmError,
                                f"^`algorithm` .*{message}"):
      tf_cdops.parse_all_reduce_spec(given)

  def test_argument_is_named(self):
    with self.assertRaisesRegex(errors.SpecError, r"^`mine` \(5\) must be"):
      spec.parse(5, "mine")


if __name__ == "__main__":
  absltest.main()
