"""Tests of how large tensors are sharded between programs."""

from absl.testing import absltest
from absl.testing import parameterized

from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.planning import planner
from tf_cdops.planning import spmd_rules

_WORKERS = 4
_MB = 1 << 20


def shards(megabytes, spec="auto", wire=None):
  """Returns the shards of each bucket, by the megabytes in it."""
  topology = topology_lib.Topology.grid(_WORKERS, 1, device_type="CPU")
  checked = registry.check_wire(wire)
  sizes = tuple(planner.TensorSize("float32", int(one * _MB))
                for one in megabytes)
  resolved = spmd_rules.resolve(planner.parse_all_reduce_spec(spec), _WORKERS,
                                nccl=False, wire=checked)
  plan = planner.plan(sizes, topology, resolved,
                      spmd_rules.packing(sizes, _WORKERS, None),
                      wire=checked)
  return [(bucket.num_bytes / _MB, bucket.shards)
          for bucket in spmd_rules.sharded(plan, sizes, _WORKERS).buckets]


class ShardedTest(parameterized.TestCase):

  @parameterized.parameters(
      ([64], [(64, 4)]),
      ([0.25, 15.75], [(15.75, 3), (0.25, 1)]),
      ([16] * 4, [(16, 1)] * 4),
      ([1] * 64, [(15, 1)] * 4 + [(4, 1)]),
      ([2.5], [(2.5, 2)]),
      ([0.5], [(0.5, 1)]))
  def test_what_is_most_of_a_batch(self, megabytes, expected):
    self.assertEqual(shards(megabytes), expected)

  def test_exchange_has_as_many_for_each_worker(self):
    self.assertEqual(shards([64], wire="bfloat16"), [(64, 4 * _WORKERS)])

  def test_a_specs_shards_stay(self):
    self.assertEqual(shards([64], spec="ps#2"), [(64, 2)])


if __name__ == "__main__":
  absltest.main()
