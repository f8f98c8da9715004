"""Tests of what tensors are called."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices

import tensorflow as tf

import tf_cdops
from tf_cdops.execution import tensor_names


def _variables(*shapes):
  return [tf.Variable(tf.zeros(shape), name=f"v{i}")
          for i, shape in enumerate(shapes)]


def _tensors(*shapes):
  return [tf.zeros(shape) for shape in shapes]


class TensorNamesTest(parameterized.TestCase):

  @parameterized.parameters(
      # The same shapes, in order.
      ([[3], [2, 2], [3]], [[3], [2, 2], [3]], ("v0", "v1", "v2")),
      ([[]], [[]], ("v0",)),
      # Some have no gradient, and there is one way to leave them out.
      ([[3], [2, 2], [3]], [[3], [3]], ("v0", "v2")),
      ([[1], [2], [3], [4]], [[1], [2], [4]], ("v0", "v1", "v3")),
      # Two ways.
      ([[3], [3], [2, 2]], [[3], [2, 2]], (None, None)),
      # Another order, others, or too few to be sure.
      ([[3], [2, 2]], [[2, 2], [3]], (None, None)),
      ([[3], [2, 2]], [[3], [2, 2], [1]], (None, None, None)),
      ([[3], [2, 2]], [[3]], (None,)),
      ([[], [2], [3]], [[]], (None,)))
  def test_batch_is_known_by_its_shapes(self, known, batch, expected):
    names = tensor_names.TensorNames()
    names.add(_variables(*known))
    self.assertEqual(names.of_batch(_tensors(*batch)), expected)

  def test_nothing_is_known_at_first(self):
    self.assertEqual(tensor_names.TensorNames().of_batch(_tensors([1])),
                     (None,))

  def test_latest_goes_first(self):
    names = tensor_names.TensorNames()
    first, second = _variables([2]), [tf.Variable([0.0, 0.0], name="other")]
    names.add(first)
    names.add(_variables([7]))
    names.add(second)
    self.assertEqual(names.of_batch(_tensors([2])), ("other",))
    self.assertEqual(names.of_batch(_tensors([7])), ("v0",))
    names.add(first)
    self.assertEqual(names.of_batch(_tensors([2])), ("v0",))

  def test_sparse_gradients(self):
    names = tensor_names.TensorNames()
    names.add(_variables([10, 2], [3]))
    slices = tf.IndexedSlices(tf.zeros([1, 2]), tf.constant([4]),
                              tf.constant([10, 2]))
    self.assertEqual(names.of_batch([slices, tf.zeros([3])]), ("v0", "v1"))

  def test_keras_variables_have_their_layers_name(self):
    layer = tf.keras.layers.Dense(2, name="last")
    layer.build([None, 3])
    self.assertEqual([tensor_names.name_of(v) for v in layer.variables],
                     ["last/kernel", "last/bias"])

  def test_labels(self):
    self.assertEqual(
        tensor_names.labels(_tensors([2, 3], []), ["kernel", None]),
        ["kernel (tensor 0 of 2, shape (2, 3), float32)",
         "tensor 1 of 2 (shape (), float32)"])
    self.assertEqual(
        tensor_names.replica_labels(tf_cdops.Topology.from_devices(
            virtual_devices.names(2))),
        [f"replica {i} of worker 0 (/job:localhost/replica:0/task:0/device:"
         f"CPU:{i})" for i in range(2)])

  def test_refuses_what_is_no_variable(self):
    with self.assertRaisesRegex(
        ValueError, r"`variables\[1\]` \(3\) must be a variable, with a name"):
      tensor_names.TensorNames().add([*_variables([2]), 3])


if __name__ == "__main__":
  absltest.main()
