"""Tests of training with a wire: Keras' fit, mixed precision, embeddings."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops

_WIRES = ("bfloat16", "float16", "int8")
# The loss without a wire, by what is trained.
_PLAIN: dict[tuple[str, str], float] = {}


def strategy_with(**how):
  """Two virtual workers of two devices each."""
  names = virtual_devices.names(4)
  topology = tf_cdops.Topology.from_devices(names, [names[:2], names[2:]])
  return tf.distribute.MirroredStrategy(
      names, cross_device_ops=tf_cdops.MultiWorkerAllReduce(
          all_reduce_spec="ps/ps", topology=topology, **how))


def trained(make_layers, features, labels, **how):
  """Returns the loss at the end, and each variable's copies."""
  tf.keras.utils.set_random_seed(3)
  strategy = strategy_with(**how)
  with strategy.scope():
    model = tf.keras.Sequential(make_layers())
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
  # Five times the data, not five epochs: TensorFlow takes its time to let go of
  # each epoch's iterator.
  model.fit(np.tile(features, (5, 1)), np.tile(labels, (5, 1)),
            batch_size=32, verbose=0, shuffle=False)
  copies = [[copy.numpy() for copy in strategy.experimental_local_results(
      weight.value)] for weight in model.trainable_weights]
  errors = model(features).numpy() - labels
  return float(np.mean(errors * errors)), copies


class TrainingTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    rng = np.random.default_rng(0)
    self.features = rng.normal(size=[128, 8]).astype("float32")
    self.labels = (self.features @ rng.normal(size=[8, 1])).astype("float32")

  def check(self, make_layers, features, tolerance=0.05, **how):
    kind = (make_layers()[0].name.rstrip("_0123456789"),
            tf.keras.mixed_precision.global_policy().name)
    if kind not in _PLAIN:  # The same for every wire.
      _PLAIN[kind], _ = trained(make_layers, features, self.labels)
    plain = _PLAIN[kind]
    loss, copies = trained(make_layers, features, self.labels, **how)
    np.testing.assert_allclose(loss, plain, rtol=tolerance)
    for replicas in copies:
      for replica in replicas:
        self.assertEqual(replica.tobytes(), replicas[0].tobytes())

  @parameterized.product(wire=_WIRES, num_packs=(0, 1))
  def test_dense(self, wire, num_packs):
    self.check(lambda: [tf.keras.layers.Dense(16, activation="relu"),
                        tf.keras.layers.Dense(1)], self.features, wire=wire,
               num_packs=num_packs)

  @parameterized.product(wire=("bfloat16", "int8"),
                         policy=("mixed_float16", "mixed_bfloat16"))
  def test_mixed_precision(self, wire, policy):
    self.addCleanup(tf.keras.mixed_precision.set_global_policy, "float32")
    tf.keras.mixed_precision.set_global_policy(policy)
    self.check(lambda: [tf.keras.layers.Dense(16, activation="relu"),
                        tf.keras.layers.Dense(1, dtype="float32")],
               self.features, wire=wire)

  @parameterized.product(wire=("bfloat16", "int8"),
                         sparse=("gather", "dense"))
  def test_embeddings(self, wire, sparse):
    numbers = np.random.default_rng(1).integers(0, 10, [128, 4])
    self.check(lambda: [tf.keras.layers.Embedding(10, 4),
                        tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)],
               numbers, wire=wire, sparse=sparse)


if __name__ == "__main__":
  absltest.main()
