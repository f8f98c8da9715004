"""What may be wrapped in what."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import keras_places

import tensorflow as tf

import tf_cdops

ours = tf_cdops.keras

_WRAPS = {
    "skip": ours.SkipNonFinite,
    "accumulate": lambda optimizer: ours.GradientAccumulation(optimizer, 2),
    "average": ours.ExponentialMovingAverage,
    "scale": ours.LossScaleOptimizer}


class WrapperTest(parameterized.TestCase):

  @parameterized.product(name=list(_WRAPS), wrong=(None, {}, 3, ["sgd"]))
  def test_what_is_no_optimizer(self, name, wrong):
    with self.assertRaisesRegex(
        ValueError, r"optimizer` \(.*\) must be a Keras optimizer, or the name "
        "or the configuration of one"):
      _WRAPS[name](wrong)

  @parameterized.parameters(
      lambda inner: ours.LossScaleOptimizer(ours.LossScaleOptimizer(inner)),
      lambda inner: ours.LossScaleOptimizer(
          tf.keras.optimizers.LossScaleOptimizer(inner)),
      lambda inner: ours.LossScaleOptimizer(
          ours.SkipNonFinite(ours.LossScaleOptimizer(inner))),
      lambda inner: tf.keras.optimizers.LossScaleOptimizer(
          ours.GradientAccumulation(ours.LossScaleOptimizer(inner), 2)))
  def test_two_loss_scales(self, nest):
    with self.assertRaisesRegex(
        ValueError, "must have no LossScaleOptimizer inside, .*the outermost"):
      nest(tf.keras.optimizers.SGD())

  def test_the_loss_scale_that_compile_puts_around(self):
    self.addCleanup(tf.keras.mixed_precision.set_global_policy, "float32")
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = tf.keras.Sequential([tf.keras.layers.Input((2,)),
                                 tf.keras.layers.Dense(1)])
    model.compile(ours.LossScaleOptimizer(ours.SkipNonFinite("sgd")), "mse")
    with self.assertRaisesRegex(ValueError, "must have no LossScaleOptimizer"):
      model.compile(ours.SkipNonFinite(ours.LossScaleOptimizer("sgd")), "mse")

  @parameterized.product(
      name=("skip", "scale"), setting=(
          ("gradient_accumulation_steps", "GradientAccumulation"),
          ("ema_overwrite_frequency", "ExponentialMovingAverage")))
  def test_what_keras_cannot_do_under_a_strategy(self, name, setting):
    argument, remedy = setting
    make = lambda: _WRAPS[name](tf.keras.optimizers.SGD(
        use_ema=argument.startswith("ema"), **{argument: 2}))
    strategy = keras_places.strategy_for((2, "ours"))
    with strategy.scope(), self.assertRaisesRegex(
        ValueError, rf"`optimizer` \(sgd\w*\) has {argument}=2, .*keras#20582.*"
        rf"use tf_cdops.keras.{remedy}\("):
      make().build([tf.Variable(1.0)])
    make().build([tf.keras.Variable(1.0)])  # One device can.

  def test_what_another_wrapper_does_instead(self):
    strategy = keras_places.strategy_for((2, "ours"))
    with strategy.scope():
      ours.SkipNonFinite(ours.ExponentialMovingAverage(
          tf.keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=2))
                         ).build([tf.Variable(1.0)])


if __name__ == "__main__":
  absltest.main()
