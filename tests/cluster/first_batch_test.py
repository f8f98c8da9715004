"""A first batch that the replicas can't divide evenly."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from tests import keras_models
from tests import keras_places
import tensorflow as tf

import tf_cdops


def _model(strategy):
  return keras_models.model(
      strategy, lambda: tf.keras.optimizers.SGD(0.25), "mse",
      metrics=["mae"])


def _shares(rows, replicas):
  """Returns how many examples each replica gets of a batch."""
  most = -(-rows // replicas)
  return [max(0, min(most, rows - most * i)) for i in range(replicas)]


class FirstBatchTest(parameterized.TestCase):

  @parameterized.parameters((16, 3), (3, 4), (5, 4), (12, 4))
  def test_every_replicas_mean_counts_alike(self, rows, replicas):
    x, y = keras_models.real_numbers(2 * rows)
    strategy = tf_cdops.keras.accept_uneven_batches(
        keras_places.strategy_for((replicas, "ours")))
    trained = _model(strategy)
    keras_models.fit(trained, x, y, rows)
    weights = np.concatenate([
        np.full([share], rows / (replicas * share) if share else 0.0)
        for share in _shares(rows, replicas)])
    expected = _model(None)
    keras_models.fit(expected, x, y, rows,
                     sample_weight=np.concatenate([weights, weights]))
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        trained.get_weights(), expected.get_weights())

  def test_evaluate_predict_and_datasets(self):
    x, y = keras_models.real_numbers(16)
    strategy = tf_cdops.keras.accept_uneven_batches(
        keras_places.strategy_for((3, "ours")))
    made, expected = _model(strategy), _model(None)
    np.testing.assert_allclose(
        made.evaluate(x, y, batch_size=16, verbose=0),
        expected.evaluate(x, y, batch_size=16, verbose=0), rtol=1e-4)
    np.testing.assert_allclose(
        made.predict(x, batch_size=16, verbose=0),
        expected.predict(x, batch_size=16, verbose=0), rtol=1e-4)
    made.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16),
             verbose=0, shuffle=False)
    self.assertTrue(np.isfinite(made.get_weights()[0]).all())

  def test_nobody_else_gets_another_answer(self):
    strategy = tf_cdops.keras.accept_uneven_batches(
        keras_places.strategy_for((2, "ours")))
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            [1.0, 2.0]) * (1 + context.replica_id_in_sync_group))
    np.testing.assert_array_equal(strategy.reduce("MEAN", values, axis=None),
                                  [1.5, 3.0])
    self.assertEqual(strategy.reduce("SUM", values, axis=0).numpy(), 9.0)

  def test_what_is_no_strategy(self):
    with self.assertRaisesRegex(
        ValueError, r"`strategy` \('mirrored'\) must be a tf.distribute.Str"):
      tf_cdops.keras.accept_uneven_batches("mirrored")


if __name__ == "__main__":
  absltest.main()
