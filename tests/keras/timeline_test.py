"""Tests of Timeline with Keras, on logical devices of one process."""

import json
import logging
import os
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import timeline_format
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.base import errors
from tf_cdops.cluster import profiling
from tf_cdops.explaining import timeline as timeline_lib

_DEVICES = virtual_devices.names(2)


def strategy_of(spec="xring"):
  return tf.distribute.MirroredStrategy(
      _DEVICES, tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec))


def model_of(strategy, **compiled):
  with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((6,)), tf.keras.layers.Dense(8, name="first"),
        tf.keras.layers.Dense(1, name="last")], name="m")
    model.compile("sgd", "mse", **compiled)
  return model


def fit(model, timeline, steps=8, **kwargs):
  x = np.ones((8 * steps, 6), "float32")
  model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[timeline],
            **kwargs)


class Interrupt(tf.keras.callbacks.Callback):
  """Ctrl-C in the middle of some step."""

  def __init__(self, step):
    super().__init__()
    self._step = step

  def on_train_batch_begin(self, batch, logs=None):
    del logs
    if batch == self._step:
      raise KeyboardInterrupt


class TimelineTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / "trace.json"

  def content(self):
    return json.loads(self.path.read_text(encoding="utf-8"))

  def test_keras(self):
    timeline = tf_cdops.Timeline(self.path, steps=2, verbose=False)
    fit(model_of(strategy_of()), timeline)
    trace, summary = timeline.trace, timeline.summary
    self.assertEqual([step.number for step in trace.steps], [3, 4])
    self.assertEqual(trace.devices[:2], tuple(_DEVICES))
    self.assertEqual(
        [(b.algorithm, b.num_bytes, b.tensors) for b in trace.buckets],
        [("xring", 4, ("m/last/bias",)), ("xring", 32, ("m/last/kernel",)),
         ("xring", 32, ("m/first/bias",)),
         ("xring", 192, ("m/first/kernel",))])
    self.assertLen(summary.buckets, 4)  # Each was seen.
    self.assertEqual({span.device for span in trace.spans}, set(_DEVICES))
    self.assertEqual(
        {(span.bucket, span.device) for span in trace.spans
         if span.bucket is not None},
        {(i, device) for i in range(4) for device in _DEVICES})
    self.assertNotEmpty(trace.transfers)
    timeline_format.check(self, self.content())
    self.assertIn("exposed communication", str(timeline))

  def test_without_a_strategy(self):
    timeline = tf_cdops.Timeline(self.path, steps=1, verbose=False)
    fit(model_of(tf.distribute.get_strategy()), timeline)
    summary = timeline.summary
    self.assertEqual((summary.buckets, summary.late, summary.communication),
                     ((), None, 0))
    self.assertGreater(summary.computing, 0)
    self.assertEqual(timeline.trace.devices, (_DEVICES[0],))

  def test_bytes_are_those_of_explain(self):
    timeline = tf_cdops.Timeline(self.path, steps=1, verbose=False)
    strategy = strategy_of("xring:100:ps#2")
    model = model_of(strategy)
    fit(model, timeline)
    explained = tf_cdops.explain(
        "xring:100:ps#2", tf_cdops.Topology.from_devices(_DEVICES),
        [(v.shape, v.dtype) for v in model.trainable_variables])
    self.assertEqual(
        [(b.algorithm, b.num_bytes) for b in timeline.trace.buckets],
        [(b.algorithm, b.num_bytes) for b in explained.plan.buckets])

  def test_busy_and_waiting_add_up(self):
    timeline = tf_cdops.Timeline(self.path, steps=2, verbose=False)
    fit(model_of(strategy_of("ps")), timeline)
    steps = sum(step.seconds for step in timeline.trace.steps)
    lanes = timeline_format.busy_and_waiting(self.content())
    self.assertLen(lanes, 2)
    for busy, waiting in lanes.values():
      self.assertGreater(busy, 0)
      self.assertAlmostEqual(busy + waiting, steps, delta=0.01 * steps)

  def test_as_a_context_manager(self):
    strategy = strategy_of("ps")

    @tf.function
    def step(x):
      def replica():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM,
                                  [x * 2.0, x[:3] * 3.0])
      return strategy.experimental_local_results(strategy.run(replica))

    step(tf.ones([5]))  # A constant would be summed while it is traced.
    with tf_cdops.Timeline(self.path, strategy=strategy, verbose=False) as (
        timeline):
      step(tf.ones([5]))
      step(tf.ones([5]))
    self.assertLen(timeline.trace.steps, 2)
    self.assertEqual([b.num_bytes for b in timeline.trace.buckets], [12, 20])
    timeline_format.check(self, self.content())

  def test_an_error_inside_leaves_a_file(self):
    with self.assertRaisesRegex(RuntimeError, "mine"), tf_cdops.Timeline(
        self.path, strategy=strategy_of(), verbose=False):
      raise RuntimeError("mine")
    self.assertEqual(self.content()["traceEvents"][0]["ph"], "M")

  def test_interrupted_in_the_middle(self):
    timeline = tf_cdops.Timeline(self.path, steps=3, verbose=False)
    model = model_of(strategy_of())
    x = np.ones((64, 6), "float32")
    with self.assertRaises(KeyboardInterrupt):
      model.fit(x, x[:, :1], batch_size=8, verbose=0,
                callbacks=[timeline, Interrupt(5)])
    self.assertEqual(self.content(), {"traceEvents": []})
    timeline._abandon()  # As at the program's exit.
    self.assertLen(timeline.trace.steps, 2)
    timeline_format.check(self, self.content())
    # Nothing is left running.
    profiling.OwnProfile().stop()

  def test_does_nothing_outside_its_steps(self):
    started = []
    original = profiling.OwnProfile
    with mock.patch.object(
        profiling, "OwnProfile",
        side_effect=lambda: started.append(timeline._seen) or original()):
      timeline = tf_cdops.Timeline(self.path, steps=1, verbose=False)
      model = model_of(strategy_of())
      fit(model, timeline)
      first, function = timeline.trace, model.train_function
      self.path.unlink()
      fit(model, timeline, epochs=2)
    self.assertEqual(started, [3, 3])  # Once in each `fit`.
    self.assertIsNot(timeline.trace, first)
    timeline_format.check(self, self.content())
    self.assertIs(model.train_function, function)  # Nothing is traced anew.

  def test_ends_what_a_training_that_raised_has_left_running(self):
    model = model_of(strategy_of())
    left = tf_cdops.Timeline(self.path, steps=3, verbose=False)
    x = np.ones((64, 6), "float32")
    with self.assertRaises(KeyboardInterrupt):
      model.fit(x, x[:, :1], batch_size=8, verbose=0,
                callbacks=[left, Interrupt(5)])
    second = tf_cdops.Timeline(self.path.with_name("2"), steps=1,
                               verbose=False)
    fit(model, second)
    self.assertLen(left.trace.steps, 2)
    timeline_format.check(self, self.content())
    self.assertLen(second.trace.steps, 1)

  def test_a_profile_that_someone_else_has_ended(self):
    with tf_cdops.Timeline(self.path, strategy=strategy_of(),
                           verbose=False) as timeline:
      tf.profiler.experimental.stop()
    self.assertEmpty(timeline.trace.steps)
    self.assertIn("no step was seen", str(timeline))

  def test_too_few_steps(self):
    timeline = tf_cdops.Timeline(self.path)
    with self.assertLogs("absl", logging.WARNING) as logs:
      fit(model_of(strategy_of()), timeline, steps=3)
    self.assertRegex(logs.output[0], "ended after 3 steps, .* from step 4 on")
    self.assertFalse(self.path.exists())

  def test_fewer_steps_than_asked_for(self):
    timeline = tf_cdops.Timeline(self.path, steps=9, verbose=False)
    fit(model_of(strategy_of()), timeline, steps=5)
    self.assertLen(timeline.trace.steps, 2)

  def test_several_steps_a_call(self):
    timeline = tf_cdops.Timeline(self.path, steps=1, verbose=False)
    fit(model_of(strategy_of(), steps_per_execution=2), timeline, steps=10)
    self.assertLen(timeline.trace.steps, 1)
    self.assertLen(timeline.summary.buckets, 4)

  def test_prints_a_summary(self):
    with mock.patch("builtins.print") as printed:
      fit(model_of(strategy_of()), tf_cdops.Timeline(self.path, steps=1))
    self.assertRegex(printed.call_args[0][0],
                     f"(?s)a step .*Written to {self.path}")

  def test_one_profile_at_a_time(self):
    other = profiling.OwnProfile()
    try:
      with self.assertRaisesRegex(errors.InputError, "profile_batch=0"):
        tf_cdops.Timeline(self.path, strategy=strategy_of()).__enter__()
    finally:
      other.stop()

  @parameterized.parameters(0, -1, 2.0, True, "3", 1001)
  def test_wrong_steps(self, steps):
    with self.assertRaisesRegex(ValueError, r"`steps` \("):
      tf_cdops.Timeline(self.path, steps=steps)

  def test_wrong_strategy(self):
    with self.assertRaisesRegex(
        ValueError, r"`strategy` \('x'\) must be a tf.distribute.Strategy"):
      tf_cdops.Timeline(self.path, strategy="x")

  @parameterized.parameters(
      (5, r"\(5\) must name a file, or be None"),
      ("", "must name a file, and is empty"),
      ("/no/such/folder/trace.json", "make /no/such/folder first"),
      ("/", "must name a file, not a folder"))
  def test_wrong_path(self, path, why):
    with self.assertRaisesRegex(ValueError, f"`path` .*{why}"):
      tf_cdops.Timeline(path)

  def test_by_the_environment(self):
    idle = tf_cdops.Timeline()
    self.assertTrue(idle.is_done)
    with mock.patch.dict(
        os.environ, {timeline_lib.VARIABLE: str(self.path)}):
      timeline = tf_cdops.Timeline(verbose=False)
    fit(model_of(strategy_of()), timeline)
    self.assertLen(timeline.trace.steps, 3)
    fit(model_of(strategy_of()), idle)
    self.assertIsNone(idle.trace)


if __name__ == "__main__":
  absltest.main()
