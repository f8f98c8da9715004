"""Tests of plans that a file pins."""

import copy
import json
import os
import pickle

from absl.testing import absltest
from absl.testing import parameterized

import tf_cdops
from tf_cdops import cost
from tf_cdops.base import errors
from tf_cdops.cost import given
from tf_cdops.planning import pinned
from tf_cdops.planning import planner
from tf_cdops.planning import spec_file

_TOPOLOGIES = {
    "one CPU": tf_cdops.Topology.grid(1, 4, device_type="CPU"),
    "one worker": tf_cdops.Topology.grid(1, 3),
    "two workers": tf_cdops.Topology.grid(2, 2),
    "hosts": tf_cdops.Topology.grid(4, 1, device_type="CPU"),
    "uneven": tf_cdops.Topology.from_devices(
        [f"/job:worker/task:{task}/device:GPU:{index}"
         for task, index in ((0, 0), (0, 1), (1, 0))])}
_TWO = _TOPOLOGIES["two workers"]
_SIZES = tuple(
    planner.TensorSize(dtype, num_bytes) for dtype, num_bytes in (
        *[("float32", 1024)] * 20, ("float16", 512), ("float16", 0),
        ("float32", None), ("float32", 4 << 20), ("float32", 64 << 20)))
_BUCKET = {"tensors": [0, 1], "algorithm": "ps", "shards": 1, "rotation": 0}
_PLAN = {"workers": [2, 2],
         "tensors": [["float32", 8], ["float32", 16], ["int32", None]],
         "buckets": [_BUCKET, _BUCKET | {"tensors": [2]}]}


class PinnedTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.create_tempdir().full_path, "plan.json")

  def pin(self, plan, sizes, topology, spec="auto", **settings):
    """Returns the spec of a file with a plan."""
    spec_file.write(self.path, spec_file.content(
        spec, settings.get("packing", planner.Packing()),
        settings.get("network"), [planner.to_pin(plan, sizes, topology)]))
    return tf_cdops.parse_all_reduce_spec(f"@{self.path}")

  @parameterized.product(
      where=tuple(_TOPOLOGIES), spec=("auto", "ps:2k:xring#3"),
      packing=(None, planner.Packing(2), planner.Packing(0, 4096, 3)))
  def test_is_followed_as_it_was_saved(self, where, spec, packing):
    topology = _TOPOLOGIES[where]
    plan = planner.plan(_SIZES, topology,
                        tf_cdops.parse_all_reduce_spec(spec), packing)
    parsed = self.pin(plan, _SIZES, topology, spec)
    # Whatever is given beside it.
    again = planner.plan(_SIZES, topology, parsed, planner.Packing(1),
                         network=cost.PRESETS["1gbe"])
    self.assertEqual(again, planner.Plan(plan.buckets, is_pinned=True))

  def test_other_rules_do_not_change_it(self):
    topology = _TOPOLOGIES["hosts"]
    plan = planner.plan(_SIZES, topology,
                        tf_cdops.parse_all_reduce_spec("rechd#5"))
    parsed = self.pin(plan, _SIZES, topology, "auto")
    self.assertEqual(planner.plan(_SIZES, topology, parsed).buckets,
                     plan.buckets)

  @parameterized.parameters(
      (_SIZES[:-1], "two workers"), (_SIZES[::-1], "two workers"),
      (_SIZES, "hosts"), (_SIZES, "uneven"))
  def test_other_batches_go_by_spec_packing_and_links(self, sizes, where):
    slow = given.MeasuredLinks(None, cost.Link("slow", 1e-3, 1e7))
    packing, topology = planner.Packing(0, 2048, 4), _TOPOLOGIES[where]
    plain = tf_cdops.parse_all_reduce_spec("auto")
    parsed = self.pin(planner.plan(_SIZES, _TWO, plain), _SIZES, _TWO,
                      packing=packing, network=slow)
    self.assertEqual(planner.plan(sizes, topology, parsed),
                     planner.plan(sizes, topology, plain, packing,
                                  network=slow))
    fast = cost.PRESETS["infiniband"]  # What is given goes before the file.
    self.assertEqual(
        planner.plan(sizes, topology, parsed, network=fast),
        planner.plan(sizes, topology, plain, packing, network=fast))

  def test_plans_make_a_difference(self):
    plain = tf_cdops.parse_all_reduce_spec("auto")
    one, same, other = (
        self.pin(planner.plan(sizes, _TWO, plain), sizes, _TWO)
        for sizes in (_SIZES, _SIZES, _SIZES[1:]))
    self.assertEqual(one, same)
    self.assertEqual(hash(one), hash(same))
    self.assertLen({one, same, other, one.without_packing()}, 3)
    self.assertNotEqual(one.without_packing(), plain)
    self.assertIn(f"1 plans of '{self.path}'", repr(one))
    for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
      self.assertEqual((again, again.plans), (one, one.plans))

  def test_many_tensors(self):
    sizes = [planner.TensorSize("float32", 4 * i) for i in range(10_000)]
    plan = planner.plan(sizes, _TWO, tf_cdops.parse_all_reduce_spec("ps"))
    self.pin(plan, sizes, _TWO)
    parsed = tf_cdops.parse_all_reduce_spec(f"@{self.path}")
    self.assertEqual(planner.plan(sizes, _TWO, parsed).buckets, plan.buckets)

  def test_a_file_that_cannot_be_written(self):
    with self.assertRaisesRegex(
        errors.InputError, r"^`path` \('/no/such/x'\) must be a file that can "
        "be written: No such file or directory; name another"):
      spec_file.write("/no/such/x", {})


class MalformedPlanTest(parameterized.TestCase):

  def refused(self, plans):
    path = self.create_tempfile("plan.json", json.dumps(
        {"all_reduce_spec": "auto", "plans": plans})).full_path
    with self.assertRaises(errors.Error) as caught:
      tf_cdops.parse_all_reduce_spec(f"@{path}")
    start = f"`all_reduce_spec` ('@{path}'): its "
    self.assertStartsWith(str(caught.exception), start)
    return str(caught.exception).removeprefix(start)

  def test_well_formed(self):
    path = self.create_tempfile("plan.json", json.dumps(
        {"all_reduce_spec": "auto", "plans": [_PLAN]})).full_path
    plan, = tf_cdops.parse_all_reduce_spec(f"@{path}").plans
    self.assertEqual(plan.to_dict(), _PLAN)
    self.assertEqual([b.num_bytes for b in plan.buckets], [24, None])

  @parameterized.parameters(
      (5, "must be an object with the lists workers, tensors, buckets, none"),
      ({}, "must be an object with the lists"),
      (_PLAN | {"tensors": []}, "must be an object with the lists"),
      (_PLAN | {"workers": 2}, "must be an object with the lists"),
      (_PLAN | {"workers": [2, 0]}, r": its 'workers' \(0\) must be whole"),
      (_PLAN | {"workers": [True]}, r": its 'workers' \(True\) must be whole"),
      *((_PLAN | {"tensors": [tensor, *_PLAN["tensors"][1:]]},
         ": its tensor 0 .* must be a list of a dtype and its bytes, null if")
        for tensor in (5, [], ["float32"], ["float32", -1], ["float32", 1.5],
                       [None, 8], ["float32", "8"])),
      (_PLAN | {"buckets": [_BUCKET]},
       " must have each tensor in one bucket, and tensor 2 is in 0"),
      (_PLAN | {"buckets": [*_PLAN["buckets"], _BUCKET | {"tensors": [1]}]},
       " must have each tensor in one bucket, and tensor 1 is in 2"),
      (_PLAN | {"tensors": [["float32", 8], ["int32", 8], ["int32", None]]},
       ": its bucket 0 must have tensors of one dtype, and they are of "
       "float32 and int32"))
  def test_malformed(self, plan, message):
    self.assertRegex(self.refused([plan]), rf"^plan 0 ?{message}.*; correct "
                     r"it, or save the plan again\.$")

  @parameterized.parameters(
      ({"tensors": []}, r" has the tensors \[\], which must be positions from "
       "0 to 2"),
      ({"tensors": [3]}, r" has the tensors \[3\], which must be positions"),
      ({"tensors": [-1]}, r" has the tensors \[-1\], which must be positions"),
      ({"tensors": 0}, " has the tensors 0, which must be positions"),
      ({"algorithm": 5}, r": its 'algorithm' \(5\) must be a name"),
      ({"shards": 0}, r": its 'shards' \(0\) must be a whole number of at "
       "least 1"),
      ({"shards": "2"}, r": its 'shards' \('2'\) must be a whole number"),
      ({"rotation": -1}, r": its 'rotation' \(-1\) must be a whole number of "
       "at least 0"),
      ({"rotation": None}, r": its 'rotation' \(None\) must be a whole"),
      ({"tensors": [2], "shards": 2}, " must have one tensor and one shard: it "
       "has a tensor whose size isn't known"))
  def test_malformed_bucket(self, change, message):
    self.check_bucket(_BUCKET | change, message)

  @parameterized.parameters((5,), ({},), ({"tensors": [0]},))
  def test_incomplete_bucket(self, bucket):
    self.check_bucket(bucket, " must be an object with tensors, algorithm, "
                      "shards, rotation")

  def check_bucket(self, bucket, message):
    self.assertRegex(
        self.refused([_PLAN | {"buckets": [bucket]}]),
        rf"^plan 0: its bucket 0{message}.*; correct it, or save the plan")

  def test_malformed_lists(self):
    self.assertRegex(self.refused({}), "^'plans' must be a list; correct it")
    self.assertRegex(self.refused([_PLAN, _PLAN]),
                     "^plan 1 must have other workers or tensors than the ")

  def test_algorithms_must_be_registered(self):
    plan = _PLAN | {"buckets": [_BUCKET | {"algorithm": "xrng"},
                                _BUCKET | {"tensors": [2]}]}
    path = self.create_tempfile("plan.json", json.dumps(
        {"all_reduce_spec": "auto", "plans": [plan]})).full_path
    with self.assertRaisesRegex(errors.AlgorithmError,
                                r"\('xrng'\) must be .*Did you mean 'xring'"):
      tf_cdops.parse_all_reduce_spec(f"@{path}")


class DifferenceTest(parameterized.TestCase):

  @parameterized.parameters(
      ([2, 2], [8, 16, 4], "has 3 tensors of 28 bytes and not 2 of 24"),
      ([2, 2], [16, 8],
       "has float32 of 16 bytes as tensor 0 and not float32 of 8 bytes"),
      ([4], [8, 16], "is of 1 worker with 4 devices each and not of 2 workers "
       "with 2 devices each"),
      ([1, 3], [8, 16, 4], "is of 2 workers with 1 to 3 devices each and not "
       "of 2 workers with 2 devices each, and has 3 tensors of 28 bytes and "
       "not 2 of 24"))
  def test_says_how_a_batch_differs(self, workers, num_bytes, text):
    batch = lambda workers, num_bytes: pinned.Batch(
        tuple(workers), tuple(("float32", one) for one in num_bytes))
    plans = [pinned.PinnedPlan(batch(workers, num_bytes), ())
             for workers, num_bytes in (([9], [1]), ([2, 2], [8, 16]))]
    self.assertEqual(pinned.difference(batch(workers, num_bytes), plans), text)


if __name__ == "__main__":
  absltest.main()
