"""Tests of `reproducible`."""

from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util
from tests import virtual_devices

import numpy as np

import tf_cdops

SUM = test_util.SUM
PACKINGS = class_util.PACKINGS
of_unknown_shape = class_util.of_unknown_shape
batch_reduce = class_util.batch_reduce


class ReproducibleTest(parameterized.TestCase):
  """With numbers whose sum depends, in its last bits, on the order."""

  LENGTHS = (5, 64, 1, 33, 2)
  COUNT = virtual_devices.COUNT

  def setUp(self):
    super().setUp()
    rng = np.random.default_rng(0)
    # By value, replica and element.
    self.numbers = [
        (rng.normal(size=[self.COUNT, n])
         * 10.0**rng.integers(-3, 4, [self.COUNT, n])).astype("float32")
        for n in self.LENGTHS]

  def bits(self, mode: str, destination: str | None = None,
           **kwargs: Any) -> list[Any]:
    """Returns the sums; all-reduced, unless a destination is given."""
    ops = tf_cdops.MultiWorkerAllReduce(**kwargs)
    def emit() -> list[Any]:
      # Not as constants, whose sums Grappler may do before the graph runs.
      values = [virtual_devices.per_replica([
          of_unknown_shape(replica, replica.shape) for replica in number])
                for number in self.numbers]
      return ops.batch_reduce(SUM, [(v, destination or v) for v in values])
    results = test_util.run(mode, emit)
    for result in results:
      self.assertEqual(result.arrays, result.arrays[:1] * len(result.arrays))
    return [result.arrays[0] for result in results]

  def in_replica_order(self) -> list[Any]:
    totals = []
    for number in self.numbers:
      total = number[0]
      for replica in number[1:]:
        total = total + replica
      totals.append(total.tolist())
    return totals

  @parameterized.product(
      spec=("ps", "pscpu#5", "ps:16:pscpu#2:64:ps#20", "auto"),
      packing=PACKINGS)
  def test_bits_do_not_depend_on_packing_shards_or_sizes(self, spec, packing):
    self.assertEqual(
        self.bits("eager", all_reduce_spec=spec, reproducible=True, **packing),
        self.in_replica_order())

  @parameterized.product(spec=("ps", "pscpu#3"), packing=PACKINGS[::2])
  def test_nor_on_the_mode(self, spec, packing):
    """In a graph Grappler sorts AddN's inputs by their names."""
    self.assertEqual(
        self.bits("function", all_reduce_spec=spec, reproducible=True,
                  **packing), self.in_replica_order())

  @parameterized.parameters("eager", "function")
  def test_nor_on_the_destination(self, mode):
    self.assertEqual(
        self.bits(mode, "/cpu:3", all_reduce_spec="ps", reproducible=True),
        self.in_replica_order())

  @parameterized.parameters("eager", "function")
  def test_what_cancels_is_plus_zero(self, mode):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps",
                                        reproducible=True)
    (result,) = test_util.run(mode, lambda: batch_reduce(
        ops, SUM, [virtual_devices.per_replica([1.0, -1.0, 0.0])]))
    self.assertEqual(str(result.arrays), "[0.0, 0.0, 0.0]")

  @parameterized.parameters("xring", "rechd", "hierarchical_copy")
  def test_bits_do_depend_on_them_otherwise(self, spec):
    """So the numbers of these tests can tell one order from another."""
    bits = self.bits("eager", all_reduce_spec=spec)
    self.assertNotEqual(bits, self.in_replica_order())
    for ours, in_order in zip(bits, self.in_replica_order(), strict=True):
      np.testing.assert_allclose(ours, in_order, rtol=1e-3, atol=1e-3)

  def test_packing_and_shards_change_bits_otherwise(self):
    self.assertLen({str(self.bits("eager", **kwargs)) for kwargs in (
        {"all_reduce_spec": "xring"}, {"all_reduce_spec": "xring#3"},
        {"all_reduce_spec": "xring", "num_packs": 1})}, 3)

  @parameterized.parameters("xring", "rechd", "collective", "ps:1k:xring",
                            "hierarchical_copy#2", "pscpu/pscpu", "ps/ps")
  def test_specs_that_cannot_are_refused(self, spec):
    with self.assertRaisesRegex(
        ValueError, r"`reproducible` \(True\) must have algorithms that sum in "
        r"the order of replicas, and '\S+' in `all_reduce_spec` doesn't; use "
        r"'ps'"):
      tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, reproducible=True)


if __name__ == "__main__":
  absltest.main()
