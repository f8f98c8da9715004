"""Tests of the checks that every call and constructor makes first."""

from collections.abc import Iterator
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.base import tf_compat

SUM = test_util.SUM
_DEVICE = "/cpu:0"
_BAD_OPS = ("SUM", None, 3, tf.VariableAggregation.SUM)

# What can't be reduced, and how the error names it. Each is made when its
# test runs: TensorFlow's devices must not be fixed by importing a file.
_BAD_VALUES = {
    "none": (lambda: None, r"\(NoneType: None\)"),
    "text": (lambda: "text", r"\(str: 'text'\)"),
    "bytes": (lambda: b"text", r"\(bytes: b'text'\)"),
    "object": (object, r"\(object: <object object at"),
    "mixed_list": (lambda: [1, "a", None], r"\(list: \[1, 'a', None\]\)"),
    "long_list": (lambda: [None] * 100, r"\(list\)"),
    "dict": (lambda: {"a": 1}, r"\(dict: \{'a': 1\}\)"),
    "sparse_tensor": (
        lambda: tf.sparse.from_dense([0.0, 1.0]), r"\(SparseTensor\)"),
    "ragged_tensor": (
        lambda: tf.ragged.constant([[1.0], []]), r"\(RaggedTensor"),
}
_NOT_NUMBERS = {
    "string": lambda: tf.constant("a"),
    "bool": lambda: tf.constant([True]),
    "variant": lambda: tf.data.experimental.to_variant(
        tf.data.Dataset.range(1)),
    "resource": lambda: tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[]),
    "bool slices": lambda: test_util.slices([[True]], [0], dtype=tf.bool),
    "bool array": lambda: np.array([True]),
    "string list": lambda: ["a", "b"],
}
_BAD_DESTINATIONS = {
    "empty_string": (lambda: "", r"\(''\) must be a device\. .*tf\.identity"),
    "not_a_device": (
        lambda: "nonsense", r"\('nonsense'\) must be a device name; write"),
    "absent": (lambda: "/gpu:7", r"\('/gpu:7'\) must be a device of this "
               "program; choose one of /device:CPU:0, .*/device:CPU:15"),
    "no_values": (lambda: tf_compat.PerReplica(()),
                  r"\(no values\) must have at least one device"),
    "int": (lambda: 5, r"\(int: 5\) must be a tf\.distribute\.Distributed"
            r"Values, a tf\.Variable, a tf\.Tensor, .* or a device string"),
    "none": (lambda: None, r"\(NoneType: None\) must be a tf\."),
    "list": (lambda: [_DEVICE], r"\(list: \['/cpu:0'\]\) must be a tf\."),
    "tuple": (lambda: (_DEVICE,), r"\(tuple: \('/cpu:0',\)\) must be a tf\."),
    "bytes": (lambda: b"/cpu:0", r"\(bytes: b'/cpu:0'\) must be a tf\."),
    "array": (lambda: np.zeros(2), r"\(ndarray: array\(.*\)\) must be a tf\."),
}
# Replicas that don't go together, and what the error says of them.
_UNLIKE_REPLICAS = {
    "shapes": (lambda: ([1.0, 2.0], [1.0, 2.0, 3.0]),
               r"replica 0 has shape \(2,\) and replica 1 has \(3,\)"),
    "ranks": (lambda: (1.0, [1.0]),
              r"replica 0 has shape \(\) and replica 1 has \(1,\)"),
    "last_of_three": (lambda: ([1], [1], [[1]]),
                      r"replica 0 has shape \(1,\) and replica 2 has \(1, 1\)"),
    "dtypes": (lambda: (tf.constant(1.0), tf.constant(1)),
               "replica 0 has dtype float32 and replica 1 has int32"),
    "rows": (lambda: (test_util.slices([[1, 2]], [0]),
                      test_util.slices([[1]], [0])),
             r"slices of shape \(2,\) and replica 1 has \(1,\)"),
    "dense_shapes": (lambda: (test_util.slices([[1, 2]], [0], [3, 2]),
                              test_util.slices([[1, 2]], [0], [4, 2])),
                     r"dense_shape \(3, 2\) and replica 1 has \(4, 2\)"),
    "slices_dtypes": (
        lambda: (test_util.slices([[1]], [0]),
                 test_util.slices([[1]], [0], dtype=tf.float64)),
        "replica 0 has dtype float32 and replica 1 has float64"),
    "slices_and_dense": (
        lambda: (test_util.slices([[1, 2]], [0], [3, 2]), tf.ones([4, 2])),
        r"dense_shape \(3, 2\) and replica 1 has \(4, 2\)"),
    "slices_and_scalar": (
        lambda: (test_util.slices([1, 2], [0, 1]), tf.constant(1.0)),
        r"replica 1 has \(\)"),
}


def distributed(*parts: Any) -> Any:
  """Returns a PerReplica that holds anything, as a mistaken caller's might."""
  return tf_compat.PerReplica(parts)


def calls(reduce_op: Any, value: Any, destinations: Any) -> dict[str, Any]:
  """Returns the calls that hand over the same things, by name."""
  ops = tf_cdops.ReductionToOneDevice()
  good = (virtual_devices.per_replica([1.0, 2.0]), _DEVICE)
  return {
      "reduce": lambda: ops.reduce(reduce_op, value, destinations),
      "batch_reduce": lambda: ops.batch_reduce(
          reduce_op, [(value, destinations)]),
      "second of a batch": lambda: ops.batch_reduce(
          reduce_op, [good, (value, destinations)]),
  }


class InputsTest(parameterized.TestCase):

  def assert_rejected(self, reduce_op: Any, value: Any, destinations: Any,
                      regex: str) -> None:
    """Asserts that every way to hand these over raises the same error."""
    where = {"batch_reduce": r"^`value_destination_pairs\[0\]`: ",
             "second of a batch": r"^`value_destination_pairs\[1\]`: "}
    for name, call in calls(reduce_op, value, destinations).items():
      with (self.subTest(call=name),
            self.assertRaisesRegex(
                ValueError, where.get(name, "^") + regex)):
        call()

  @parameterized.named_parameters(
      (name, *row) for name, row in _BAD_VALUES.items())
  def test_value(self, make, regex):
    rule = ".* must be a tensor, a variable, tf.IndexedSlices, a NumPy array"
    self.assert_rejected(
        SUM, make(), _DEVICE, f"`per_replica_value` {regex}{rule}")
    for replica in (0, 1):
      parts = [tf.constant(1.0)] * 2
      parts[replica] = make()
      self.assert_rejected(
          SUM, distributed(*parts), _DEVICE,
          f"`per_replica_value, replica {replica}` {regex}{rule}")

  def test_value_without_replicas(self):
    self.assert_rejected(SUM, distributed(), _DEVICE,
                         r"`per_replica_value` \(no values\) must have a value")

  @parameterized.named_parameters(_NOT_NUMBERS.items())
  def test_dtype_without_a_sum(self, make):
    value = make()
    dtype = getattr(value, "dtype", tf.string)
    regex = f"`per_replica_value` has dtype {dtype.name}, which has no sum"
    self.assert_rejected(SUM, value, _DEVICE, regex)
    self.assert_rejected(SUM, distributed(value, value), _DEVICE, regex)

  @parameterized.named_parameters(
      (name, *row) for name, row in _UNLIKE_REPLICAS.items())
  def test_replicas_that_differ(self, make, regex):
    value = virtual_devices.per_replica(make())
    self.assert_rejected(SUM, value, value, f".*{regex}.*; all replicas must")

  @parameterized.named_parameters(
      (name, *row) for name, row in _BAD_DESTINATIONS.items())
  def test_destinations(self, make, regex):
    for value in (tf.constant(1.0), virtual_devices.per_replica([1.0, 2.0])):
      self.assert_rejected(SUM, value, make(), f"`destinations` {regex}")
    with self.assertRaisesRegex(ValueError, f"^`destinations` {regex}"):
      tf_cdops.ReductionToOneDevice().broadcast(1.0, make())

  @parameterized.parameters(*_BAD_OPS)
  def test_reduce_op(self, reduce_op):
    for value in (tf.constant(1.0), virtual_devices.per_replica([1.0]),
                  virtual_devices.per_replica([1.0, 2.0])):
      for name, call in calls(reduce_op, value, value).items():
        with (self.subTest(call=name),
              self.assertRaisesRegex(
                  ValueError, r"^`reduce_op` \(.*\) must be tf\.distribute\."
                  r"ReduceOp\.SUM or tf\.distribute\.ReduceOp\.MEAN\."
                  r"( Write tf\.distribute\.ReduceOp\.SUM\.)?$")):
          call()

  @parameterized.parameters(
      (5, r"` \(int: 5\) must be an iterable of \(value, destinations\)"),
      (None, r"` \(NoneType: None\) must be an iterable"),
      ([[1.0, _DEVICE]], r"\[0\]` \(list: \[1.0, '/cpu:0'\]\) must be a tuple"),
      ([(1.0, _DEVICE), (1.0, _DEVICE, 3)], r"\[1\]` \(tuple: .*, 3\)\) must"),
      ([(1.0,)], r"\[0\]` \(tuple: \(1.0,\)\) must be a tuple of two"),
      ((1.0, _DEVICE), r"\[0\]` \(float: 1.0\) must be a tuple of two"),
      ("ab", r"\[0\]` \(str: 'a'\) must be a tuple of two"),
      ({"a": 1}, r"\[0\]` \(str: 'a'\) must be a tuple of two"))
  def test_pairs(self, pairs, regex):
    with self.assertRaisesRegex(
        ValueError, f"^`value_destination_pairs{regex}"):
      tf_cdops.ReductionToOneDevice().batch_reduce(SUM, pairs)

  def test_pairs_that_are_tensorflows(self):
    for pairs in (virtual_devices.per_replica([1.0, 2.0]), tf.constant(1.0),
                  tf.constant([1.0])):
      with (self.subTest(type=type(pairs).__name__),
            self.assertRaisesRegex(ValueError, "^`value_destination_pairs")):
        tf_cdops.ReductionToOneDevice().batch_reduce(SUM, pairs)

  @parameterized.parameters([()], [[]], [iter(())], [{}])
  def test_empty_batch(self, pairs):
    self.assertEqual(tf_cdops.ReductionToOneDevice().batch_reduce(
        SUM, pairs), [])

  def test_generator_of_pairs(self):
    pairs = ((virtual_devices.per_replica([n, n]), _DEVICE)
             for n in (3.0, 1.0, 2.0))
    results = tf_cdops.ReductionToOneDevice().batch_reduce(SUM, pairs)
    self.assertEqual([float(result) for result in results], [6.0, 2.0, 4.0])

  def test_generator_keeps_its_own_errors(self):
    def broken() -> Iterator[Any]:
      yield tf.constant(1.0), _DEVICE
      raise TypeError("the caller's own mistake")
    with self.assertRaisesRegex(TypeError, "the caller's own mistake"):
      tf_cdops.ReductionToOneDevice().batch_reduce(SUM, broken())

  @parameterized.parameters("nonsense", "", 5, "/gpu:x", b"/cpu:0", "/cpu:0/")
  def test_reduce_to_device_that_is_no_name(self, name):
    with self.assertRaisesRegex(
        ValueError, r"^`reduce_to_device` \(.*\) must be a device name; write "
        "it as /job:NAME/replica:N/task:N/device:TYPE:N, every part optional"):
      tf_cdops.ReductionToOneDevice(name)

  @parameterized.parameters("/gpu:7", "/cpu:16", "/job:worker/cpu:0", "/task:1")
  def test_reduce_to_device_that_is_absent(self, name):
    self.assertLen(tf.config.list_logical_devices(), virtual_devices.COUNT)
    with self.assertRaisesRegex(
        ValueError, rf"^`reduce_to_device` \('{name}'\) must be a device of "
        "this program; choose one of /device:CPU:0, .*, /device:CPU:15.$"):
      tf_cdops.ReductionToOneDevice(name)

  @parameterized.parameters(5, "add", [[tf.math.add_n]], 0, "")
  def test_accumulation_fn(self, fn):
    with self.assertRaisesRegex(
        ValueError, r"^`accumulation_fn` \(.*\) must be a function of a list"):
      tf_cdops.ReductionToOneDevice(accumulation_fn=fn)

  @parameterized.named_parameters(
      (name, *row) for name, row in _BAD_VALUES.items())
  def test_broadcast(self, make, regex):
    with self.assertRaisesRegex(ValueError, f"^`tensor` {regex}.* must be a"):
      tf_cdops.ReductionToOneDevice().broadcast(make(), _DEVICE)

  def test_broadcast_of_several_values(self):
    with self.assertRaisesRegex(
        ValueError, r"^`tensor` \(PerReplica\) must be one value; pick one"):
      tf_cdops.ReductionToOneDevice().broadcast(
          virtual_devices.per_replica([1.0, 2.0]), _DEVICE)


class GatherInputsTest(parameterized.TestCase):

  def gather(self, parts: Any, axis: Any) -> Any:
    strategy = tf.distribute.MirroredStrategy(
        virtual_devices.names(len(parts)),
        cross_device_ops=tf_cdops.ReductionToOneDevice())
    return strategy.gather(virtual_devices.per_replica(parts), axis)

  @parameterized.product(replicas=(1, 2), axis_and_regex=(
      (2, r"\(2\) must be a dimension of the value, whose shape is \(1, 2\)"),
      (-3, r"\(-3\) must be a dimension of the value"),
      ("x", r"\('x'\) must be an integer"),
      (None, r"\(None\) must be an integer"),
      (1.0, r"\(1.0\) must be an integer"),
      (True, r"\(True\) must be an integer"),
      (np.int64(2), r"\(2\) must be a dimension of the value"),
      ([0], r"\(\[0\]\) must be an integer")))
  def test_axis(self, replicas, axis_and_regex):
    axis, regex = axis_and_regex
    with self.assertRaisesRegex(ValueError, f"^`axis` {regex}"):
      self.gather([[[1.0, 2.0]]] * replicas, axis)

  @parameterized.parameters(
      (0.5, "must be an integer"),
      ([0, 1], "must be an integer"),
      (2, r"\(2\) must be a dimension"))
  def test_axis_that_is_a_tensor(self, axis, regex):
    with self.assertRaisesRegex(ValueError, f"^`axis` .*{regex}"):
      self.gather([[[1.0, 2.0]]] * 2, tf.constant(axis))

  @parameterized.named_parameters(
      ("other_dimensions", lambda: ([[1.0, 2.0]], [[1.0, 2.0, 3.0]]),
       r"^replica 0 has shape \(1, 2\) and replica 1 has shape \(1, 3\); they "
       "must have the same rank, and differ only in axis 0: reshape, pad or "),
      ("ranks", lambda: (tf.ones([2, 3]), tf.ones([4])),
       r"^replica 0 has shape \(2, 3\) and replica 1 has shape \(4,\); they "
       "must have the same rank, and differ only in axis 0: "),
      ("third_rank", lambda: ([1.0], [1.0, 2.0], [[1.0]]),
       r"^replica 0 has shape \(1,\) and replica 2 has shape \(1, 1\); they "),
      ("dtypes", lambda: (tf.constant([1.0]), tf.constant([1.0], tf.float64)),
       "dtype float32 and replica 1 has float64"),
      ("scalars", lambda: (1.0, 2.0),
       r"`axis` \(0\) .* give it one with value\[None\]"),
      ("second_scalar", lambda: ([1.0], 2.0),
       r"^replica 0 has shape \(1,\) and replica 1 has shape \(\); they "),
      ("slices", lambda: [test_util.slices([[1.0]], [0])] * 2,
       r"^`value` \(tf\.IndexedSlices\) can't be gathered"),
      ("second_slices", lambda: ([1.0], test_util.slices([1.0], [0])),
       r"^`value` \(tf\.IndexedSlices\) can't be gathered"),
      ("variants", lambda: [tf.data.experimental.to_variant(
          tf.data.Dataset.range(1))[None]] * 2,
       "^`value` has dtype variant, which can't be gathered"))
  def test_value(self, make, regex):
    with self.assertRaisesRegex(ValueError, regex):
      self.gather(make(), 0)

  @parameterized.parameters(
      (1, "axis 1"), (-1, "axis -1"), (np.int64(1), "axis 1"))
  def test_ranks_that_differ_along_another_axis(self, axis, text):
    for given in (axis, tf.constant(axis)):
      with self.assertRaisesRegex(
          ValueError, r"^replica 0 has shape \(2, 3\) and replica 1 has shape "
          rf"\(4,\); they must have the same rank, and differ only in {text}:"):
        self.gather((tf.ones([2, 3]), tf.ones([4])), given)

  def test_ranks_that_differ_along_an_axis_that_is_not_known_yet(self):
    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def gather(axis):
      return self.gather((tf.ones([2, 3]), tf.ones([4])), axis)

    with self.assertRaisesRegex(
        ValueError, r"replica 0 has shape \(2, 3\) and replica 1 has shape "
        r"\(4,\); they must have the same rank, and differ only in the axis "
        "that they are joined along: "):
      gather(tf.constant(0))


class InsideFunctionTest(parameterized.TestCase):
  """An error while tracing is still a ValueError, with its text."""

  @parameterized.parameters(False, True)
  def test_bad_value(self, autograph):
    ops = tf_cdops.ReductionToOneDevice()
    @tf.function(autograph=autograph)
    def step() -> Any:
      return ops.reduce(SUM, virtual_devices.per_replica([[1.0], [1.0, 2.0]]),
                        _DEVICE)
    with self.assertRaisesRegex(
        ValueError, r"replica 0 has shape \(1,\) and replica 1 has \(2,\)"):
      step()

  @parameterized.parameters(False, True)
  def test_batch_of_a_strategy(self, autograph):
    strategy = tf.distribute.MirroredStrategy(
        virtual_devices.names(2),
        cross_device_ops=tf_cdops.ReductionToOneDevice())
    def merge(strategy: tf.distribute.Strategy, value: Any) -> Any:
      return strategy.extended.batch_reduce_to(SUM, [(value, value)])
    def replica() -> Any:
      context = tf.distribute.get_replica_context()
      return context.merge_call(merge, (tf.constant([True]),))
    step = tf.function(lambda: strategy.run(replica), autograph=autograph)
    with self.assertRaisesRegex(ValueError, "dtype bool, which has no sum"):
      step()

  @parameterized.parameters(False, True)
  def test_destination_without_a_device(self, autograph):
    ops = tf_cdops.ReductionToOneDevice()
    @tf.function(autograph=autograph)
    def step() -> Any:
      value = tf.constant(1.0)
      return ops.reduce(SUM, value, value)
    with self.assertRaisesRegex(
        ValueError, r"`destinations` \(.*\) has no device here, inside a "
        "tf.function or graph; pass a device string instead"):
      step()

  def test_unknown_shapes_are_let_through(self):
    ops = tf_cdops.ReductionToOneDevice()
    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([None])])
    def step(first: Any, second: Any) -> Any:
      value = virtual_devices.per_replica([first, second])
      return ops.reduce(SUM, value, _DEVICE)
    self.assertEqual(step([1.0, 2.0], [3.0, 4.0]).numpy().tolist(), [4.0, 6.0])


if __name__ == "__main__":
  absltest.main()
