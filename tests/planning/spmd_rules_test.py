"""Specs and packs where each worker runs a program of its own."""

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib
from tf_cdops.planning import spmd_rules


def resolve(text, workers=4, wire=None, nccl=False):
  return str(spmd_rules.resolve(
      planner.parse_all_reduce_spec(text), workers, nccl=nccl,
      wire=registry.check_wire(wire)))


class ResolveTest(parameterized.TestCase):

  @parameterized.parameters(
      ("auto", None, "ps/collective"),
      ("auto", "bfloat16", "ps/ps#4"),
      ("xring", None, "xring/collective"),
      ("xring#3", "int8", "xring/ps#4"),
      ("xring/ps#5", None, "xring/ps#8"),
      ("collective", None, "collective"),
      ("ps/collective#3", None, "ps/collective#3"),
      ("ps:64k:xring/ps", None, "ps/collective:64k:xring/ps#4"))
  def test_pairs(self, text, wire, expected):
    self.assertEqual(resolve(text, wire=wire), expected)
    # What it stands for stands for itself.
    self.assertEqual(resolve(expected, wire=wire), expected)

  def test_nccl_where_it_can_run(self):
    self.assertEqual(resolve("auto", nccl=True), "nccl/collective")
    self.assertEqual(resolve("auto", nccl=True, wire="int8"), "nccl/ps#4")

  @parameterized.parameters(
      ("ps/xring", None, r"\('ps/xring'\) must be what sums inside a worker"),
      ("collective/ps", None, "must be what sums inside a worker"),
      ("collective", "bfloat16", r"\('collective'\) must be something else "
       r"with a `wire` \('bfloat16'\).*use 'auto'"),
      ("xring/collective", "int8", "use 'xring/ps'"))
  def test_what_programs_cannot_do(self, text, wire, message):
    with self.assertRaisesRegex(errors.SpecError, message):
      resolve(text, wire=wire)

  def test_alternatives_are_all_that_there_are(self):
    names = ["ps", "xring", "collective"]
    find = lambda devices, wire: {str(one) for one in spmd_rules.alternatives(
        topology_lib.Topology.grid(2, devices), names,
        registry.check_wire(wire))}
    self.assertEqual(find(1, None), {"ps/collective", "ps/ps#2"})
    self.assertEqual(find(2, None), {
        "ps/collective", "ps/ps#2", "xring/collective", "xring/ps#2",
        "collective"})
    self.assertEqual(find(2, "int8"), {"ps/ps#2", "xring/ps#2"})


class PackingTest(parameterized.TestCase):

  def buckets(self, sizes, bytes_per_pack=None, workers=1):
    tensors = [planner.TensorSize("float32", size) for size in sizes]
    return planner.plan(
        tensors, topology_lib.Topology.grid(workers, 1), spec_lib.parse("ps"),
        spmd_rules.packing(tensors, workers, bytes_per_pack)).buckets

  def test_the_last_gradients_are_sent_first(self):
    buckets = self.buckets([2 << 20] * 40)
    self.assertGreater(len(buckets), 1)
    order = [tensor for bucket in buckets
             for tensor in reversed(bucket.tensors)]
    self.assertEqual(order, list(reversed(range(40))))

  def test_little_is_one_pack(self):
    self.assertLen(self.buckets([1024] * 500), 1)

  def test_more_workers_have_larger_packs(self):
    sizes = [1 << 20] * 14
    self.assertEqual([len(self.buckets(sizes, workers=workers))
                      for workers in (2, 4, 8, 64)], [5, 4, 2, 1])

  def test_what_is_computed_last_travels_by_itself(self):
    megabyte = 1 << 20
    tail = self.buckets([1024, 4096, 9 * megabyte, 7 * megabyte])[-1]
    self.assertEqual(tail.tensors, (0, 1))
    tail = self.buckets([megabyte] * 64)[-1]
    self.assertEqual(tail.tensors, (0, 1, 2, 3))
    tail = self.buckets([8 * megabyte] * 4)[-1]
    self.assertEqual(tail.tensors, (0,))

  def test_no_pack_is_larger_than_asked_for(self):
    buckets = self.buckets([300, 5000, 300, 300, 300], 1000)
    self.assertEqual({bucket.tensors for bucket in buckets
                      if bucket.num_bytes > 1000}, {(1,)})
    self.assertEqual(sorted(t for b in buckets for t in b.tensors),
                     list(range(5)))


if __name__ == "__main__":
  absltest.main()
