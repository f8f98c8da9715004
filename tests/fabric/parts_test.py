"""Tests of what splitting a value copies, and that sums don't write into it."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

from tf_cdops.fabric import tensorflow as tensorflow_fabric

DEVICES = class_util.DEVICES


def memory(tensor: tf.Tensor) -> np.ndarray:
  """Returns the tensor's own memory."""
  return np.frombuffer(memoryview(tensor), tensor.dtype.as_numpy_dtype)


class SplitTest(parameterized.TestCase):

  @parameterized.parameters(
      ([4096], "float32"), ([64, 64], "float32"), ([4096], "float16"),
      ([512], "float64"))
  def test_even_parts_are_where_the_value_is(self, shape, dtype):
    with tf.device(DEVICES[0]):
      value = tf.reshape(tf.range(np.prod(shape), dtype=dtype), shape)
    fabric = tensorflow_fabric.TensorFlowFabric()
    placed, = fabric.place([value], DEVICES[:1])
    parts = fabric.split(placed, 8)
    for part in parts:
      self.assertTrue(np.shares_memory(memory(part.tensor), memory(value)))
      self.assertEqual(part.tensor.shape, [part.length])
    np.testing.assert_array_equal(
        np.concatenate([part.tensor for part in parts]),
        np.ravel(value))

  @parameterized.parameters(8 * 24, 4097)
  def test_other_parts_are_copies(self, length):
    with tf.device(DEVICES[0]):
      value = tf.range(length, dtype="float32")
    fabric = tensorflow_fabric.TensorFlowFabric()
    placed, = fabric.place([value], DEVICES[:1])
    parts = [part.tensor for part in fabric.split(placed, 8)]
    self.assertFalse(np.shares_memory(memory(parts[1]), memory(value)))
    np.testing.assert_array_equal(np.concatenate(parts), value)


class UntouchedInputsTest(parameterized.TestCase):

  @parameterized.product(spec=("xring#4", "rechd#2", "ps#4"),
                         function=(True, False))
  def test_sums_are_not_written_into_the_inputs(self, spec, function):
    numbers = [np.arange(4096, dtype="float32") * (i + 1)
               for i in range(len(DEVICES))]
    variables = []
    for device, number in zip(DEVICES, numbers, strict=True):
      with tf.device(device):
        variables.append(tf.Variable(number))
    ops = class_util.make(spec)

    def step():
      values = [virtual_devices.per_replica(
          [variable.read_value() for variable in variables])]
      return class_util.batch_reduce(ops, test_util.SUM, values)

    run = tf.function(step) if function else step
    for _ in range(3):
      result, = class_util.arrays(run())
      np.testing.assert_array_equal(result[-1], sum(numbers))
      for variable, number in zip(variables, numbers, strict=True):
        np.testing.assert_array_equal(variable, number)


if __name__ == "__main__":
  absltest.main()
