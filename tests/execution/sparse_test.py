"""Tests of the three ways to all-reduce tf.IndexedSlices."""

import logging
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.execution import sparse

SUM, MEAN = test_util.SUM, test_util.MEAN
SHAPE = [5, 2]
NONE = (np.zeros([0, 2]), [])
# For each case, each replica's (values, indices); thirds of them are exact.
CASES = {
    "one each": (([[3, 6]], [3]), ([[9, 12]], [0]), ([[15, 18]], [4])),
    "one index": (([[3, 6]], [3]), ([[9, 12]], [3]), ([[15, 18]], [3])),
    "duplicates": (([[3, 6], [9, 12], [15, 18]], [1, 1, 0]),
                   ([[21, 24], [27, 3]], [1, 1]), ([[6, 9]], [1])),
    "different numbers": (([[3, 6]], [2]),
                          ([[9, 12], [15, 18], [21, 24], [27, 3]],
                           [0, 4, 2, 0]),
                          ([[6, 9], [12, 15]], [4, 4])),
    "none in some": (NONE, ([[9, 12], [15, 18]], [0, 4]), NONE),
    "none at all": (NONE, NONE, NONE),
    "one replica": (([[3, 6], [9, 12]], [4, 4]),),
}


def per_replica(case: str, dense_shape: Any = SHAPE, **kwargs: Any) -> Any:
  return test_util.per_replica_slices(
      *((*replica, dense_shape) for replica in CASES[case]), **kwargs)


def dense_sum(case: str) -> np.ndarray:
  total = np.zeros(SHAPE)
  for values, indices in CASES[case]:
    np.add.at(total, np.array(indices, int), np.array(values, float))
  return total


def as_dense(result: Any) -> list[Any]:
  """Returns each device's part, made dense as an optimizer would."""
  return [tf.convert_to_tensor(part) for part in
          test_util.local_results(result)]


def ops_for(mode: str, **kwargs: Any) -> tf.distribute.CrossDeviceOps:
  return tf_cdops.MultiWorkerAllReduce(sparse=mode, **kwargs)


class SparseTest(parameterized.TestCase):

  @parameterized.product(mode=sparse.MODES, run=test_util.MODES,
                         reduce_op=(SUM, MEAN))
  def test_sums(self, mode, run, reduce_op):
    ops = ops_for(mode)
    def emit() -> list[Any]:  # All cases, so that there is but one graph.
      return [part for case in CASES
              for value in [per_replica(case, dtype=tf.float64)]
              for result in (ops.reduce(reduce_op, value, value),
                             *ops.batch_reduce(reduce_op, [(value, value)]))
              for part in as_dense(result)]
    results = iter(test_util.run(run, emit))
    for case, replicas in CASES.items():
      expected = dense_sum(case) / (len(replicas) if reduce_op == MEAN else 1)
      for i in range(2 * len(replicas)):
        self.assertEqual(next(results).arrays, [expected.tolist()], (case, i))
    self.assertEmpty(list(results))

  @parameterized.product(mode=sparse.MODES, kind=(
      lambda **kwargs: tf_cdops.AllReduceCrossDeviceOps("xring", **kwargs),
      lambda **kwargs: tf_cdops.MultiWorkerAllReduce(num_packs=1, **kwargs),
      tf_cdops.NcclAllReduce))
  def test_results_are_where_the_values_were(self, mode, kind):
    value = per_replica("duplicates")
    result = kind(sparse=mode).reduce(SUM, value, value)
    for part, device in zip(result.values, virtual_devices.names(3),
                            strict=True):
      parts = ([part.values, part.indices, part.dense_shape]
               if isinstance(part, tf.IndexedSlices) else [part])
      self.assertEqual({p.device for p in parts}, {device})
      self.assertEqual(tf.convert_to_tensor(part).numpy().tolist(),
                       dense_sum("duplicates").tolist())

  @parameterized.parameters(("gather", 6), ("deduplicate", 4))
  def test_slices_that_are_sent(self, mode, count):
    """Two of the first replica's slices and both of the second's are one."""
    value = per_replica("duplicates")
    for part in ops_for(mode).reduce(SUM, value, value).values:
      self.assertIsInstance(part, tf.IndexedSlices)
      self.assertEqual(part.indices.shape, [count])
      self.assertEqual(part.values.shape, [count, 2])
      self.assertEqual(part.dense_shape.numpy().tolist(), SHAPE)

  def test_deduplicates_before_anything_is_sent(self):
    def emit() -> None:
      value = per_replica("duplicates")
      ops_for("deduplicate").reduce(SUM, value, value)
    graph = tf.function(emit).get_concrete_function().graph
    for kind in ("Unique", "UnsortedSegmentSum"):
      self.assertCountEqual(
          [op.device for op in graph.get_operations() if op.type == kind],
          virtual_devices.names(3))

  @parameterized.parameters("gather", "deduplicate")
  def test_slices_keep_the_order_of_replicas(self, mode):
    value = per_replica("one each")
    for part in ops_for(mode).reduce(SUM, value, value).values:
      self.assertEqual(part.indices.numpy().tolist(), [3, 0, 4])
      self.assertEqual(part.values.numpy().tolist(),
                       [[3, 6], [9, 12], [15, 18]])

  @parameterized.parameters(*test_util.MODES)
  def test_dense_gives_tensors(self, run):
    def emit() -> list[Any]:
      value = per_replica("duplicates")
      return ops_for("dense").batch_reduce(SUM, [(value, value)])
    (result,) = test_util.run(run, emit)
    self.assertEqual(result.kinds, ["Tensor"] * 3)
    self.assertEqual(result.devices, virtual_devices.names(3))
    self.assertEqual(result.arrays, [dense_sum("duplicates").tolist()] * 3)

  def test_dense_is_packed_with_the_dense(self):
    def emit() -> None:
      values = [per_replica("one each"),
                virtual_devices.per_replica([tf.ones([3])] * 3)]
      ops_for("dense", all_reduce_spec="ps", num_packs=1).batch_reduce(
          SUM, [(v, v) for v in values])
    graph = tf.function(emit).get_concrete_function().graph
    self.assertLen([op for op in graph.get_operations() if op.type == "AddN"],
                   1)

  @parameterized.parameters((None,), (0,), (2,))
  def test_dense_without_a_dense_shape_stays_sparse(self, replica):
    """One replica that doesn't know it is enough."""
    value = per_replica("duplicates", None)
    if replica is not None:
      parts = list(per_replica("duplicates").values)
      parts[replica] = value.values[replica]
      value = virtual_devices.per_replica(parts)
    for part in ops_for("dense").reduce(MEAN, value, value).values:
      self.assertIsInstance(part, tf.IndexedSlices)
      whole = tf.IndexedSlices(part.values, part.indices, SHAPE)
      self.assertEqual(tf.convert_to_tensor(whole).numpy().tolist(),
                       (dense_sum("duplicates") / 3).tolist())

  @parameterized.product(
      mode=sparse.MODES, reduce_op=(SUM, MEAN), dense_replica=(0, 1, 2),
      dense_shape=(SHAPE, None))
  def test_with_a_dense_replica(self, mode, reduce_op, dense_replica,
                                dense_shape):
    parts = list(per_replica("duplicates", dense_shape).values)
    expected = dense_sum("duplicates") + 3.0
    values, indices = CASES["duplicates"][dense_replica]
    np.subtract.at(expected, indices, values)
    with tf.device(virtual_devices.names(3)[dense_replica]):
      parts[dense_replica] = tf.fill(SHAPE, 3.0)
    value = virtual_devices.per_replica(parts)
    result = ops_for(mode).reduce(reduce_op, value, value)
    for part in as_dense(result):
      self.assertEqual(part.numpy().tolist(), (
          expected / (3 if reduce_op == MEAN else 1)).tolist())

  @parameterized.product(mode=sparse.MODES, dtype=("int64", "complex64"))
  def test_other_dtypes(self, mode, dtype):
    value = per_replica("duplicates", dtype=dtype)
    for reduce_op, result_dtype in (
        (SUM, dtype), (MEAN, {"int64": "float64"}.get(dtype, dtype))):
      result = ops_for(mode).reduce(reduce_op, value, value)
      for part in as_dense(result):
        self.assertEqual(part.dtype.name, result_dtype)
        self.assertEqual(part.numpy().tolist(), (dense_sum("duplicates") / (
            3 if reduce_op == MEAN else 1)).tolist())

  @parameterized.product(mode=sparse.MODES, indices=(
      [tf.int32] * 3, [tf.int32, tf.int64, tf.int32]))
  def test_index_dtypes(self, mode, indices):
    value = virtual_devices.per_replica([
        per_replica("duplicates", index_dtype=dtype).values[i]
        for i, dtype in enumerate(indices)])
    for part in as_dense(ops_for(mode).reduce(SUM, value, value)):
      self.assertEqual(part.numpy().tolist(),
                       dense_sum("duplicates").tolist())

  @parameterized.parameters(*sparse.MODES)
  def test_no_warning(self, mode):
    """In a function whose slices' number and dense shape aren't known."""
    ops = ops_for(mode)
    strategy = tf.distribute.MirroredStrategy(
        virtual_devices.names(3), cross_device_ops=ops)
    spec = tf.TensorSpec([None], tf.int64)
    @tf.function(input_signature=[
        tf.TensorSpec([None, 2]), spec, tf.TensorSpec([2], tf.int64)])
    def step(values: Any, indices: Any, shape: Any) -> Any:
      def replica_step() -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(
            SUM, tf.IndexedSlices(values, indices, shape))
      result = strategy.run(replica_step)
      return [tf.math.unsorted_segment_sum(
          part.values, part.indices, 5) if isinstance(
              part, tf.IndexedSlices) else part for part in result.values]
    value = per_replica("duplicates")
    with self.assertNoLogs("absl", logging.WARNING), self.assertNoLogs(
        "tensorflow", logging.WARNING):
      for _ in range(3):
        ops.reduce(SUM, value, value)
      for length in (1, 2):
        for part in step(tf.ones([length, 2]), tf.zeros([length], tf.int64),
                         tf.constant(SHAPE, tf.int64)):
          self.assertEqual(part.numpy().tolist(),
                           [[3.0 * length] * 2] + [[0.0] * 2] * 4)

  def test_modes_agree_on_large_numbers_of_slices(self):
    rng = np.random.default_rng(0)
    replicas = [(rng.integers(-9, 9, [n, 3]), rng.integers(0, 40, n), [40, 3])
                for n in (200, 0, 77)]
    value = test_util.per_replica_slices(*replicas)
    results = [
        [part.numpy().tolist() for part in
         as_dense(ops_for(mode).reduce(SUM, value, value))]
        for mode in sparse.MODES]
    self.assertEqual(results[0], results[1])
    self.assertEqual(results[0], results[2])
    self.assertEqual(results[0][0], results[0][2])


if __name__ == "__main__":
  absltest.main()
