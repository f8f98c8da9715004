"""Tests of where packs are cut for the backward pass."""

import itertools
import random

from absl.testing import absltest

import tf_cdops
from tf_cdops import cost
from tf_cdops.planning import overlap
from tf_cdops.planning import planner

_FOUR = tf_cdops.Topology.grid(4, 1, device_type="CPU")
_SLOW = cost.Network(cost.Link("memory", 0, 1e10),
                     cost.Link("slow", 1e-4, 25e6, 5e-5))


def finish_of(cuts, seconds, arrived, fixed):
  """When packs with these cuts have been carried."""
  bounds = (0, *cuts, len(seconds))
  return overlap.finish(
      (arrived[start], fixed + sum(seconds[start:end]))
      for start, end in itertools.pairwise(bounds))


def plan(sizes, **how):
  return planner.plan(
      [planner.TensorSize("float32", size) for size in sizes], _FOUR,
      planner.parse_all_reduce_spec("auto"), network=_SLOW, **how)


class CutsTest(absltest.TestCase):

  def test_are_the_best_of_all(self):
    chance = random.Random(5)
    for _ in range(60):
      count = chance.randint(1, 8)
      seconds = [chance.choice((0.0, 1.0, 2.0, 7.0)) for _ in range(count)]
      arrived = overlap.arrivals(count, chance.choice((0.0, 3.0, 20.0)))
      fixed = chance.choice((0.0, 0.5, 4.0))
      every = [some for many in range(count)
               for some in itertools.combinations(range(1, count), many)]
      best = min(finish_of(cuts, seconds, arrived, fixed) for cuts in every)
      found = overlap.cuts(seconds, arrived, fixed)
      self.assertAlmostEqual(finish_of(found, seconds, arrived, fixed), best,
                             msg=f"{seconds} {arrived} {fixed} {found}")

  def test_are_the_best_of_those_with_short_packs(self):
    chance = random.Random(7)
    for _ in range(60):
      count = chance.randint(1, 8)
      seconds = [chance.choice((1.0, 2.0, 7.0)) for _ in range(count)]
      arrived = overlap.arrivals(count, chance.choice((0.0, 3.0, 20.0)))
      longest = chance.choice((0.5, 3.0, 8.0))

      def is_short(cuts, seconds=seconds, longest=longest):
        return all(end - start == 1 or sum(seconds[start:end]) <= longest
                   for start, end in itertools.pairwise(
                       (0, *cuts, len(seconds))))

      every = [some for many in range(count)
               for some in itertools.combinations(range(1, count), many)]
      best = min(finish_of(cuts, seconds, arrived, 0.5)
                 for cuts in every if is_short(cuts))
      found = overlap.cuts(seconds, arrived, 0.5, longest=longest)
      self.assertTrue(is_short(found), f"{seconds} {longest} {found}")
      self.assertAlmostEqual(finish_of(found, seconds, arrived, 0.5), best,
                             msg=f"{seconds} {arrived} {longest} {found}")

  def test_nothing_is_cut_where_all_is_there_at_once(self):
    self.assertEqual(overlap.cuts([1.0] * 9, [0.0] * 9, 0.1), ())

  def test_the_last_to_be_computed_is_small(self):
    seconds = [1.0] * 40
    cuts = overlap.cuts(seconds, overlap.arrivals(40, 40.0), 0.5)
    self.assertLess(cuts[0], 6)
    self.assertLess(len(cuts), 20)

  def test_thousands_of_tensors(self):
    cuts = overlap.cuts([1e-3] * 10_000, overlap.arrivals(10_000, 10.0), 1e-2)
    self.assertBetween(len(cuts), 2, 47)

  def test_no_tensor(self):
    self.assertEqual(overlap.cuts([], [], 1.0), ())
    self.assertEqual(overlap.cuts([0.0, 0.0], [1.0, 0.5], 1.0), ())


class EvenCutsTest(absltest.TestCase):

  def test_are_near_equal(self):
    self.assertEqual(overlap.even_cuts([1] * 12, 4), (3, 6, 9))
    self.assertEqual(overlap.even_cuts([1, 1, 1, 9], 2), (3,))
    self.assertEqual(overlap.even_cuts([9, 1, 1, 1], 2), (1,))

  def test_no_more_than_there_are(self):
    self.assertEqual(overlap.even_cuts([5], 4), ())
    self.assertEqual(overlap.even_cuts([5, 5], 4), (1,))
    self.assertEqual(overlap.even_cuts([0, 0], 3), ())


class PlanTest(absltest.TestCase):

  def test_packs_leave_early(self):
    sizes = [400_000] * 200
    at_once = plan(sizes, backward_seconds=0)
    cut = plan(sizes)
    self.assertLess(len(at_once.buckets), len(cut.buckets))
    model = cost.Model(_FOUR, _SLOW)
    tensors = [planner.TensorSize("float32", size) for size in sizes]
    seconds = model.cost(planner.all_reduces(at_once, tensors)).time.total
    exposed = [planner.exposed_seconds(one, model, tensors, seconds)
               for one in (at_once, cut)]
    self.assertLess(exposed[1], 0.5 * exposed[0])
    self.assertLessEqual(
        model.cost(planner.all_reduces(cut, tensors)).time.total,
        1.01 * seconds)

  def test_many_are_under_way_while_devices_are_said_to_compute(self):
    sizes = [400_000] * 200
    for seconds in (1.0, 10.0, 100.0):
      packs = plan(sizes, backward_seconds=seconds).buckets
      self.assertBetween(len(packs), 16, 48)
      self.assertLessEqual(max(pack.num_bytes for pack in packs),
                           sum(sizes) / 16)

  def test_every_tensor_is_sent_once_the_last_first(self):
    chance = random.Random(3)
    for backward in (None, 0, 0.5, 100):
      sizes = [4 * chance.randint(0, 10**chance.randint(2, 6))
               for _ in range(chance.randint(1, 300))]
      buckets = plan(sizes, backward_seconds=backward).buckets
      self.assertCountEqual(range(len(sizes)),
                            itertools.chain(*(b.tensors for b in buckets)))
      lasts = [bucket.tensors[-1] for bucket in buckets]
      self.assertEqual(lasts, sorted(lasts, reverse=True))

  def test_devices_of_one_machine_have_no_cuts(self):
    one = tf_cdops.Topology.grid(1, 4, device_type="CPU")
    tensors = [planner.TensorSize("float32", 4096)] * 100
    spec = planner.parse_all_reduce_spec("auto")
    self.assertEqual(
        planner.plan(tensors, one, spec, backward_seconds=5.0),
        planner.plan(tensors, one, spec, backward_seconds=0))

  def test_explain_says_what_is_not_hidden(self):
    found = tf_cdops.explain("auto", _FOUR, [1 << 20] * 60, network=_SLOW,
                             backward_seconds=2.0)
    self.assertRegex(str(found), r"not hidden +\S+ m?s: what is left to send "
                     r"when a backward pass of 2 s has\s+ended")
    self.assertEqual(found.to_dict()["backward_seconds"], 2.0)
    self.assertLess(found.exposed_seconds, found.total.time.total)
    self.assertIsNone(tf_cdops.explain(
        "auto", _FOUR, [1 << 20] * 60, network=_SLOW).exposed_seconds)

  def test_wrong_seconds(self):
    for wrong in (-1, float("inf"), float("nan"), True, "2"):
      with self.assertRaisesRegex(
          ValueError, r"`backward_seconds` \(.*\) must be a number of seconds"):
        tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto",
                                      backward_seconds=wrong)
      with self.assertRaisesRegex(ValueError, "`backward_seconds`"):
        tf_cdops.explain("auto", _FOUR, [4], backward_seconds=wrong)


if __name__ == "__main__":
  absltest.main()
