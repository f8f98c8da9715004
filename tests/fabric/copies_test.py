"""Tests of the classes' repr, deep copies and pickles."""

import copy
import pickle

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import cross_device_ops_contract as contract
from tests import test_util

import tf_cdops

SUM = test_util.SUM
PAIRED, SPECS = class_util.PAIRED, class_util.SPECS
make, vectors = class_util.make, class_util.vectors
batch_reduce, arrays = class_util.batch_reduce, class_util.arrays
sums = class_util.sums


class CopyTest(parameterized.TestCase):

  @parameterized.parameters(
      (lambda: tf_cdops.AllReduceCrossDeviceOps(),
       "AllReduceCrossDeviceOps('nccl', num_packs=1, "
       "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
       "sparse='gather')"),
      (lambda: tf_cdops.AllReduceCrossDeviceOps(
          [("xring", 2, 65536), ("ps",)], 0, 512, 5, sparse="dense"),
       "AllReduceCrossDeviceOps('xring#2:64k:ps', num_packs=0, "
       "agg_small_grads_max_bytes=512, agg_small_grads_max_group=5, "
       "sparse='dense')"),
      (lambda: tf_cdops.NcclAllReduce(3),
       "NcclAllReduce(num_packs=3, sparse='gather')"),
      (lambda: tf_cdops.MultiWorkerAllReduce(),
       "MultiWorkerAllReduce(all_reduce_spec='pscpu/pscpu#2', num_packs=0, "
       "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
       "sparse='gather')"),
      (lambda: tf_cdops.MultiWorkerAllReduce(
          ["/cpu:0", "/cpu:1"], 0, tf_cdops.AllReduceSpecTuple("ps", 3, -1),
          2, sparse="deduplicate", reproducible=True, self_check=True),
       "MultiWorkerAllReduce(all_reduce_spec='ps#3', num_packs=2, "
       "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
       "sparse='deduplicate', worker_devices=('/cpu:0', '/cpu:1'), "
       "num_gpus_per_worker=0, reproducible=True, self_check=True)"),
      (lambda: tf_cdops.MultiWorkerAllReduce(
          all_reduce_spec="auto", reproducible=True, topology=PAIRED),
       "MultiWorkerAllReduce(all_reduce_spec='ps', num_packs=0, "
       "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
       f"sparse='gather', topology={PAIRED!r}, reproducible=True)"))
  def test_repr_deep_copy_and_pickle(self, build, text):
    original = build()
    self.assertEqual(repr(original), text)
    value = contract.numbers(2)
    for duplicate in (copy.deepcopy(original),
                      pickle.loads(pickle.dumps(original))):
      self.assertIs(type(duplicate), type(original))
      self.assertEqual(repr(duplicate), text)
      # To one device, so that nccl and PAIRED, which don't fit, are no matter.
      self.assertEqual(duplicate.reduce(SUM, value, "/cpu:3").numpy().tolist(),
                       [3.0, 6.0, 9.0])

  @parameterized.parameters(*SPECS)
  def test_copies_of_a_used_object_work(self, spec):
    original, values = make(spec), vectors([5, 2])
    batch_reduce(original, SUM, values)
    for duplicate in (copy.deepcopy(original),
                      pickle.loads(pickle.dumps(original))):
      self.assertEqual(arrays(batch_reduce(duplicate, SUM, values)),
                       sums(values))


if __name__ == "__main__":
  absltest.main()
