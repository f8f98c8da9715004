"""What every class of cross-device ops must do: what TensorFlow's own does.

A test of a class inherits from `Contract` and says in `make` what it tests.
"""

import copy
from typing import Any

from absl.testing import parameterized
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

from tf_cdops.base import tf_compat

SUM, MEAN = test_util.SUM, test_util.MEAN
_REPLICAS = 3
_DEVICES = virtual_devices.names(test_util.GRAPH_DEVICES)
_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8",
           "int32", "int64", "complex64")
# One reference serves every class that is held to the contract: by test, mode.
_tensorflows_results: dict[tuple[str, str], list[test_util.Result]] = {}


def numbers(replicas: int, dtype: str = "float32") -> Any:
  """Returns a PerReplica; every element differs and every sum is exact."""
  return virtual_devices.per_replica([
      tf.cast([r, 2 * r, 3 * r], dtype) for r in range(1, replicas + 1)])


class Contract(parameterized.TestCase):
  """Compares `make()` with tf.distribute.ReductionToOneDevice."""

  def setUp(self) -> None:
    super().setUp()
    # A tf.function can use these but not make its own.
    self._variables = self._make_variables()

  def make(self) -> tf.distribute.CrossDeviceOps:
    raise NotImplementedError

  def strategy(self, replicas: int) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(
        virtual_devices.names(replicas), cross_device_ops=self.make())

  def assert_as_tensorflow(self, mode: str, emit: Any
                           ) -> list[test_util.Result]:
    """Asserts that `emit(ops)` has the same results as with TensorFlow's.

    Args:
      mode: one of test_util.MODES.
      emit: the only one of its test, whose name and mode stand for it.

    Returns:
      Those results.
    """
    results = test_util.run(mode, lambda: emit(self.make()))
    key = (self._testMethodName, mode)
    if key not in _tensorflows_results:
      _tensorflows_results[key] = test_util.run(
          mode, lambda: emit(tf.distribute.ReductionToOneDevice()))
    self.assertEqual(results, _tensorflows_results[key])
    return results

  def _make_variables(self) -> dict[str, tf.Variable]:
    with tf.device(_DEVICES[1]):
      variables = {"variable": tf.Variable([7.0, 8.0])}
    with self.strategy(2).scope():
      return variables | {"mirrored_variable": tf.Variable([7.0, 8.0])}

  def variable(self, name: str) -> tf.Variable:
    if tf.compat.v1.executing_eagerly_outside_functions():
      return self._variables[name]
    return self._make_variables()[name]

  def value(self, name: str) -> Any:
    """Returns one of VALUES, made in the current graph."""
    shape = [4, 2]
    one, two = ([[1, 2]], [3]), ([[3, 4], [5, 6]], [0, 3])
    none = (np.zeros([0, 2]), [])
    sparse = test_util.per_replica_slices
    if name.endswith("variable"):
      return self.variable(name)
    if name == "tensor":
      with tf.device(_DEVICES[1]):
        return tf.identity([1., 2.])
    return {
        "per_replica": lambda: numbers(_REPLICAS),
        "mirrored": lambda: tf_compat.Mirrored(numbers(_REPLICAS).values),
        "numpy": lambda: np.array([1, 2], np.int16),
        "list": lambda: [1.0, 2.0],
        "slices": lambda: sparse((*one, shape), (*two, shape)),
        "one_slices": lambda: sparse((*two, shape)).values[0],
        "no_dense_shape": lambda: sparse(one, two, one),
        "no_slices": lambda: sparse((*none, shape), (*none, shape)),
        "some_no_slices": lambda: sparse((*none, shape), (*two, shape)),
        "int32_indices": lambda: sparse(one, two, index_dtype=tf.int32),
        "int64_values": lambda: sparse(one, two, dtype=tf.int64),
        "both_index_dtypes": lambda: virtual_devices.per_replica(
            sparse(one, index_dtype=tf.int32).values + sparse(two).values),
    }[name]()

  def destinations(self, value: Any) -> list[Any]:
    given = [] if isinstance(value, (np.ndarray, list)) else [value]
    return [*given, numbers(2), self.variable("variable"),
            self.variable("mirrored_variable"), self.value("tensor"),
            self.value("one_slices"), _DEVICES[3]]

  # Each mode has its own way to make tensors, a mean its own path for one value
  # and for slices, and each kind of value its own to be read. A mean is a sum,
  # and then divided: so graphs, which take time, do without sums alone.
  @parameterized.product(mode_and_op=(
      ("eager", SUM), *((mode, MEAN) for mode in test_util.MODES)), value=(
          "per_replica", "mirrored", "tensor", "variable", "mirrored_variable",
          "numpy", "list", "slices", "one_slices", "no_dense_shape",
          "no_slices", "some_no_slices", "int32_indices", "int64_values",
          "both_index_dtypes"))
  def test_reduces_as_tensorflow(self, mode_and_op, value):
    mode, reduce_op = mode_and_op
    def emit(ops: tf.distribute.CrossDeviceOps) -> list[Any]:
      given = self.value(value)
      pairs = [(given, d) for d in self.destinations(given)]
      singly = [ops.reduce(reduce_op, v, d) for v, d in pairs]
      return [*singly, *ops.batch_reduce(reduce_op, pairs)]
    self.assert_as_tensorflow(mode, emit)

  # Kernels differ by dtype; a mean of integers is a float's, but not of one
  # replica's; 2, 3 and 8 are the least, an odd number and a power of two.
  @parameterized.product(
      dtype=_DTYPES, reduce_op=(SUM, MEAN), replicas=(1, 2, 3, 8))
  def test_dtypes_and_replicas(self, dtype, reduce_op, replicas):
    def emit(ops: tf.distribute.CrossDeviceOps) -> list[Any]:
      value = numbers(replicas, dtype)
      return [ops.reduce(reduce_op, value, value),
              *ops.batch_reduce(reduce_op, [(value, value)]),
              ops.reduce(reduce_op, value, "CPU:9")]
    results = self.assert_as_tensorflow("eager", emit)
    total = sum(range(1, replicas + 1)) / (
        replicas if reduce_op == MEAN else 1)
    for result in results:
      for array in result.arrays:
        self.assertEqual(array, [total, 2 * total, 3 * total])

  @parameterized.product(mode=test_util.MODES, around=(None, "/cpu:3"))
  def test_device_strings_mean_what_they_do_to_tensorflow(self, mode, around):
    def emit(ops: tf.distribute.CrossDeviceOps) -> list[Any]:
      value, results = numbers(2), []
      for device in ("/cpu:1", "CPU:2", "/device:CPU:0", "/task:0/cpu", "/cpu"):
        with tf.device(device):
          there = tf.identity(0.0)
        with tf.device(around):
          results += [ops.reduce(SUM, value, device),
                      ops.reduce(SUM, value, there),
                      ops.broadcast(there, device)]
      return results
    self.assert_as_tensorflow(mode, emit)

  @parameterized.parameters(*test_util.MODES)
  def test_mean_of_one_int64_where_it_is_stays_int64(self, mode):
    def emit(ops: tf.distribute.CrossDeviceOps) -> list[Any]:
      value = numbers(1, "int64")
      return [ops.reduce(MEAN, value, value),
              *ops.batch_reduce(MEAN, [(value, value)]),
              ops.reduce(MEAN, value, _DEVICES[1])]
    results = self.assert_as_tensorflow(mode, emit)
    self.assertEqual([r.dtypes for r in results],
                     [["int64"], ["int64"], ["float64"]])

  @parameterized.product(mode=test_util.MODES, reduce_op=(SUM, MEAN))
  def test_batch_keeps_order_and_agrees_with_reduce(self, mode, reduce_op):
    def values() -> list[Any]:
      return [virtual_devices.per_replica([tf.fill([n], float(r * n))
                                           for r in range(_REPLICAS)])
              for n in (8, 2, 0, 6)] + [
                  self.value("slices"), self.value("mirrored_variable"),
                  numbers(2, "int64")]
    def batch() -> list[Any]:
      return self.make().batch_reduce(reduce_op, [(v, v) for v in values()])
    def singly() -> list[Any]:
      return [self.make().reduce(reduce_op, v, v) for v in values()]
    results = test_util.run(mode, batch)
    self.assertEqual(results, test_util.run(mode, singly))
    lengths = [len(r.arrays[0]) for r in results]
    self.assertEqual(lengths, [8, 2, 0, 6, 3, 2, 3])

  def test_slices_and_dense_replica(self):
    """TensorFlow's is dense then; slices that stand for it are right too."""
    for dense_shape in ([4, 2], None):
      first = test_util.slices([[1., 2.]], [3], dense_shape, device=_DEVICES[0])
      value = virtual_devices.per_replica([first, tf.ones([4, 2])])
      with self.subTest(dense_shape=dense_shape):
        result = self.make().reduce(MEAN, value, value)
        for part, device in zip(result.values, virtual_devices.names(2),
                                strict=True):
          self.assertEqual(part.device, device)
          self.assertEqual(tf.convert_to_tensor(part).numpy().tolist(),
                           [[0.5, 0.5]] * 3 + [[1.0, 1.5]])

  def test_dense_shape_of_any_replica_is_kept(self):
    value = test_util.per_replica_slices(
        ([[1., 2.]], [3]), ([[3., 4.]], [0], [4, 2]))
    for part in self.make().reduce(SUM, value, value).values:
      self.assertEqual(tf.convert_to_tensor(part).numpy().tolist(),
                       [[3, 4], [0, 0], [0, 0], [1, 2]])

  def test_variable_as_destination_is_not_updated(self):
    for variable in self._variables.values():
      self.make().reduce(SUM, self.value("per_replica"), variable)
      self.make().broadcast(tf.constant([1.0, 2.0]), variable)
      for part in test_util.local_results(variable):
        self.assertEqual(part.numpy().tolist(), [7.0, 8.0])

  @parameterized.product(mode=test_util.MODES, value=(
      "tensor", "variable", "mirrored_variable", "numpy", "list", "one_slices",
      "mirrored"))
  def test_broadcasts_as_tensorflow(self, mode, value):
    def emit(ops: tf.distribute.CrossDeviceOps) -> list[Any]:
      given = self.value(value)
      return [ops.broadcast(given, d) for d in self.destinations(given)]
    self.assert_as_tensorflow(mode, emit)

  @parameterized.product(in_function=(False, True), arrays_and_axis=(
      ([[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]], 0),
      ([[[1], [2]], [[3, 4], [5, 6]]], 1),
      ([[[1], [2]], [[3, 4], [5, 6]]], -1),
      ([["a", "b"], ["c"]], 0),
      ([[True], [False, True]], 0),
      ([[[1.5, 2.5]]], 0)))
  def test_gathers(self, in_function, arrays_and_axis):
    arrays, axis = arrays_and_axis
    strategy = self.strategy(len(arrays))
    # int32 never reaches the class: MirroredStrategy gathers those itself.
    tensors = [tf.constant(array) for array in arrays]
    tensors = [tf.cast(t, tf.int64) if t.dtype == tf.int32 else t
               for t in tensors]
    def gather() -> tf.Tensor:
      return strategy.gather(virtual_devices.per_replica(tensors), axis)
    result = tf.function(gather)() if in_function else gather()
    self.assertEqual(
        result.numpy().tolist(),
        np.concatenate([t.numpy() for t in tensors], axis).tolist())

  @parameterized.parameters(0, 1)
  def test_all_gathers_in_a_function(self, axis):
    strategy = self.strategy(3)
    value = virtual_devices.per_replica([[[1.]], [[2.]], [[3.]]])
    @tf.function
    def step(value: Any) -> Any:
      return strategy.run(
          lambda x: tf.distribute.get_replica_context().all_gather(x, axis),
          (value,))
    for part in step(value).values:
      self.assertEqual(part.numpy().tolist(),
                       [[[1], [2], [3]], [[1, 2, 3]]][axis])

  @parameterized.parameters(False, True)
  def test_all_reduces_nested_values_of_a_replica(self, in_function):
    strategy = self.strategy(2)
    def step() -> Any:
      context = tf.distribute.get_replica_context()
      x = tf.cast(context.replica_id_in_sync_group, tf.float32)
      return context.all_reduce(SUM, {
          "x": x + 1, "y": (x, test_util.slices([[1., 2.]], [0], [1, 2]))})
    fn = tf.function(step) if in_function else step
    for part in strategy.experimental_local_results(strategy.run(fn)):
      x, (y, sparse) = part["x"], part["y"]
      self.assertEqual((float(x), float(y)), (3.0, 1.0))
      self.assertEqual(tf.convert_to_tensor(sparse).numpy().tolist(), [[2, 4]])

  @parameterized.parameters("sum", "MEAN")
  def test_strategy_takes_the_op_as_a_string(self, reduce_op):
    value = numbers(2)
    (result,) = self.strategy(2).extended.batch_reduce_to(
        reduce_op, [(value, value)])
    self.assertEqual(float(result.values[0][0]),
                     {"sum": 3.0, "MEAN": 1.5}[reduce_op])

  def _distributed_batch(self, strategy: tf.distribute.Strategy) -> Any:
    """Returns [[0, 1], [2, 3], …], two numbers a replica, from a dataset."""
    count = 2 * strategy.num_replicas_in_sync
    dataset = tf.data.Dataset.from_tensor_slices(
        tf.range(count, dtype=tf.float32)).batch(count)
    return next(iter(strategy.experimental_distribute_dataset(dataset)))

  def test_batch_of_a_dataset_reduced_in_a_function(self):
    """The commonest step: its values come with no device."""
    strategy = self.strategy(4)
    batch = self._distributed_batch(strategy)
    given, got = [], []
    @tf.function
    def step(batch: Any) -> Any:
      results = strategy.extended.batch_reduce_to(
          SUM, [(batch, batch), (batch, batch)])
      given.extend(v.device for v in batch.values)
      got.extend([v.device for v in result.values] for result in results)
      return [result.values for result in results]
    with strategy.scope():
      results = step(batch)
    self.assertEqual(given, [""] * 4)
    self.assertEqual(got, [list(strategy.extended.worker_devices)] * 2)
    for parts in results:
      self.assertEqual([part.numpy().tolist() for part in parts],
                       [[12.0, 16.0]] * 4)

  @parameterized.parameters(None, 2, 1)
  def test_batch_of_a_dataset_and_no_strategy_that_fits(self, replicas):
    batch = self._distributed_batch(self.strategy(4))
    ops = self.make()
    @tf.function
    def step(batch: Any) -> Any:
      self.assertEqual([v.device for v in batch.values], [""] * 4)
      results = ops.batch_reduce(MEAN, [(batch, batch), (batch, _DEVICES[3])])
      return [test_util.local_results(result) for result in results]
    if replicas is None:
      results = step(batch)
    else:
      with self.strategy(replicas).scope():
        results = step(batch)
    for parts, count in zip(results, (4, 1), strict=True):
      self.assertEqual([part.numpy().tolist() for part in parts],
                       [[3.0, 4.0]] * count)

  def test_deep_copy_works_alike(self):
    original = self.make()
    value = numbers(2)
    original.reduce(SUM, value, value)
    duplicate = copy.deepcopy(original)
    self.assertIsNot(duplicate, original)
    self.assertEqual(repr(duplicate), repr(original))
    self.assertEqual(
        test_util.run("eager", lambda: [duplicate.reduce(SUM, value, value)]),
        test_util.run("eager", lambda: [original.reduce(SUM, value, value)]))
