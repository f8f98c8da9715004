"""Tests of what tuning decides, from made-up times."""

import random

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops.base import topology
from tf_cdops.cli.measuring import tuning
from tf_cdops.planning import planner

_K, _M = 2**10, 2**20
Way = planner.Choice


def size_class(limit, count=2, last=False):
  return tuning.SizeClass(limit, last, tuple(range(count)))


class SizeClassesTest(parameterized.TestCase):

  @parameterized.parameters(
      ([5], [(5, (0,))]),
      ([_K, 5 * _K, 4 * _K], [(4 * _K, (0, 2)), (5 * _K, (1,))]),
      ([16 * _M, _K, 16 * _M], [(4 * _K, (1,)), (16 * _M, (0, 2))]),
      ([0, 17 * _M], [(4 * _K, (0,)), (17 * _M, (1,))]),
      ([4 * _K, 4 * _K], [(4 * _K, (0, 1))]))
  def test_classes(self, num_bytes, expected):
    classes = tuning.size_classes(num_bytes)
    self.assertEqual([(c.limit, c.tensors) for c in classes], expected)
    self.assertEqual([c.last for c in classes],
                     [False] * (len(classes) - 1) + [True])

  def test_candidates(self):
    names = ["ps", "xring"]
    self.assertEqual(
        list(map(str, tuning.candidates(size_class(4 * _K), names))),
        ["ps", "ps, packed", "xring", "xring, packed"])
    self.assertEqual(
        list(map(str, tuning.candidates(size_class(4 * _K, 1), names))),
        ["ps", "xring"])
    self.assertEqual(
        list(map(str, tuning.candidates(size_class(16 * _M), names))),
        ["ps", "xring", "ps#2", "xring#2", "ps#4", "xring#4"])


class HalvingTest(parameterized.TestCase):

  @parameterized.parameters(
      ([1.0, 1.1, 1.2, 1.3], [0, 1]),
      ([1.3, 1.2, 1.1, 1.0], [3, 2]),
      ([1.0, 1.1, 1.2, 1.3, 1.4], [0, 1, 2]),
      ([1.0, 1.9], [0, 1]),
      ([1.0, 2.1], [0]),
      ([5.0], [0]))
  def test_survivors(self, medians, kept):
    times = {Way(f"a{i}"): [m, m, 100.0] for i, m in enumerate(medians)}
    self.assertEqual(tuning.survivors(times), [Way(f"a{i}") for i in kept])

  def test_hopeless_goes_by_the_quickest_run(self):
    self.assertFalse(tuning.hopeless([9.0, 1.9], 1.0))
    self.assertTrue(tuning.hopeless([9.0, 2.1], 1.0))


class ComposeTest(parameterized.TestCase):

  def check(self, found, spec, packed_up_to=0):
    choice = tuning.compose(found)
    self.assertEqual(str(choice.spec), spec)
    self.assertEqual(choice.packing.small_max_bytes, packed_up_to)
    self.assertEqual(choice.packing.wanted, packed_up_to > 0)
    return choice

  def test_best_of_each_size(self):
    self.check({
        size_class(4 * _K): {Way("ps"): 2, Way("xring"): 1},
        size_class(_M): {Way("ps", 2): 1, Way("xring"): 2},
        size_class(9 * _M, last=True): {Way("ps", 4): 3, Way("ps"): 4},
    }, "xring:4k:ps#2:1m:ps#4")

  def test_like_lines_are_merged(self):
    self.check({
        size_class(4 * _K): {Way("ps"): 1, Way("xring"): 2},
        size_class(_M): {Way("ps"): 1, Way("xring"): 2},
        size_class(9 * _M, last=True): {Way("xring"): 1, Way("ps"): 2},
    }, "ps:1m:xring")
    self.check({
        size_class(4 * _K): {Way("ps"): 1},
        size_class(9 * _M, last=True): {Way("ps"): 1}}, "ps")

  def test_packs_up_to_the_best_limit(self):
    choice = self.check({
        size_class(4 * _K, 5): {Way("ps"): 9, Way("ps", pack=True): 1},
        size_class(64 * _K, 3): {Way("ps"): 2, Way("xring", pack=True): 3},
        size_class(9 * _M, 2, True): {Way("xring"): 5},
    }, "ps:64k:xring", 4 * _K)
    self.assertEqual(choice.packing.small_max_group, 10)

  def test_small_ones_pay_for_packing_larger_ones(self):
    # What is packed can't have a hole: a limit is all there is.
    self.check({
        size_class(4 * _K): {Way("ps"): 2, Way("ps", pack=True): 1},
        size_class(64 * _K): {Way("ps"): 2, Way("ps", pack=True): 2.5},
        size_class(_M, last=True): {Way("ps"): 9, Way("ps", pack=True): 1},
    }, "ps", _M)

  def test_large_ones_are_never_packed(self):
    self.check({
        size_class(4 * _K): {Way("ps"): 9, Way("ps", pack=True): 1},
        size_class(9 * _M, 1, True): {Way("ps"): 1}}, "ps", 4 * _K)

  def test_one_tensor_needs_no_packing(self):
    self.check({size_class(4 * _K, 1, True): {Way("ps"): 1}}, "ps")

  def test_packed_ones_that_were_not_tried(self):
    self.check({
        size_class(4 * _K): {Way("ps"): 9},
        size_class(64 * _K, last=True): {Way("ps"): 2,
                                         Way("ps", pack=True): 1},
    }, "ps")

  def test_the_spec_does_what_was_measured(self):
    num_bytes = [_K] * 5 + [8 * _K] * 3 + [2 * _M]
    small, middle, large = tuning.size_classes(num_bytes)
    choice = tuning.compose({
        small: {Way("xring", pack=True): 1, Way("ps"): 2},
        middle: {Way("rechd"): 1}, large: {Way("ps", 2): 1}})
    plan = planner.plan(
        [planner.TensorSize("float32", n) for n in num_bytes],
        topology.Topology.grid(1, 4), choice.spec, choice.packing)
    self.assertCountEqual(
        [(b.algorithm, b.shards, b.tensors) for b in plan.buckets],
        [("xring", 1, (0, 1, 2, 3, 4)), ("rechd", 1, (5,)), ("rechd", 1, (6,)),
         ("rechd", 1, (7,)), ("ps", 2, (8,))])


class JudgeTest(parameterized.TestCase):

  def judge(self, factor, noise=0.2, pairs=40, seed=0):
    """Judges times whose noise is common to a pair, and some of its own."""
    rng = random.Random(seed)
    common = [rng.uniform(1, 3) for _ in range(pairs)]
    draw = lambda: rng.lognormvariate(0, noise)
    return tuning.judge([t * draw() for t in common],
                        [t * factor * draw() for t in common])

  @parameterized.parameters(0.5, 0.7)
  def test_sees_what_is_quicker(self, factor):
    for seed in range(20):
      verdict = self.judge(factor, seed=seed)
      self.assertTrue(verdict.better)
      self.assertBetween(verdict.ratio, verdict.low, verdict.high)
      self.assertLess(verdict.high, 1)

  @parameterized.parameters(1.0, 1.05, 1.5)
  def test_never_recommends_what_is_not(self, factor):
    better = [self.judge(factor, seed=seed).better for seed in range(400)]
    self.assertLess(sum(better) / len(better), 0.05)

  def test_a_small_gain_is_none(self):
    verdict = self.judge(0.97, noise=0.001)
    self.assertLess(verdict.high, 1)
    self.assertFalse(verdict.better)

  @parameterized.parameters((1, False), (5, False), (6, True), (7, True))
  def test_few_pairs_prove_nothing(self, pairs, better):
    verdict = tuning.judge([2.0] * pairs, [1.0] * pairs)
    self.assertEqual(verdict, tuning.Verdict(
        better, 0.5, *((0.5, 0.5) if better else (None, None)), pairs))

  def test_interval_is_that_of_the_sign_test(self):
    # Of 10, the 2nd and the 9th: beyond them are 2 * 11 / 1024 of all cases.
    verdict = tuning.judge([1.0] * 10, [float(i) for i in range(1, 11)])
    self.assertEqual((verdict.low, verdict.high), (2.0, 9.0))


if __name__ == "__main__":
  absltest.main()
