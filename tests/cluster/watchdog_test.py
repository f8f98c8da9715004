"""Tests of StepWatchdog: which steps it ends the program for, and which not."""

import contextlib
import gc
import io
import os
import threading
import weakref
from concurrent import futures
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process

from tf_cdops.base import errors
from tf_cdops.cluster import keras_calls
from tf_cdops.cluster import watchdog

Place = keras_calls.Place

_CLUSTER = {"worker": ["127.0.0.1:1"]}  # Where nobody listens.
# Far above what any step here takes.
_GENEROUS = 60.0
# Below what any test can wait for; at once, as far as people can tell.
_TINY = 0.01

_START = """\
    import sys, threading
    import tensorflow as tf
    from tf_cdops import cluster

    CLUSTER = {"worker": ["127.0.0.1:1"]}
    X = tf.ones([4, 2])

    def new_model(kind=tf.keras.Sequential, **kwargs):
      model = kind([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
      model.compile("sgd", "mse", **kwargs)
      return model
    """

# Each call fails in its second step. Then the program waits for the threads
# that watched, in a `fit` which isn't watched, and ends as it should.
_RAISES = _START + """\

    class Raises(tf.keras.callbacks.Callback):
      def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
          raise KeyError("callback")

    class Joins(tf.keras.callbacks.Callback):
      def on_train_batch_end(self, batch, logs=None):
        for thread in threads:
          thread.join(60)
          assert not thread.is_alive()

    def failing(model):
      def examples():
        yield X[:1], X[:1, :1]
        yield X[:1], X[:1, :1]
        raise RuntimeError("data")
      return tf.data.Dataset.from_generator(
          examples, output_signature=(tf.TensorSpec([1, 2]),
                                      tf.TensorSpec([1, 1]))).batch(1)

    model = new_model()
    for warm_up in (model.fit, model.evaluate):
      warm_up(X, X[:, :1], batch_size=1, verbose=0)
    model.predict(X, batch_size=1, verbose=0)
    old = set(threading.enumerate())
    kept, dogs = [], []
    for action in (
        lambda dog: model.fit(X, X[:, :1], batch_size=1, verbose=0,
                              callbacks=[Raises(), dog]),
        lambda dog: model.fit(failing(model), verbose=0, callbacks=[dog]),
        lambda dog: model.evaluate(failing(model), verbose=0, callbacks=[dog]),
        lambda dog: model.predict(failing(model), verbose=0, callbacks=[dog])):
      for _ in range(2):
        try:
          dogs.append(cluster.StepWatchdog(CLUSTER, limit=8.0))
          action(dogs[-1])
        except Exception as error:
          kept.append(error if len(kept) % 2 else type(error))
    assert len(kept) == 8, kept
    threads = set(threading.enumerate()) - old
    assert len(threads) >= 8, threads
    model.fit(X, X[:, :1], batch_size=1, verbose=0, callbacks=[Joins()])
    print("lives")
    """

# Validation of a dataset whose length is unknown, then a step that hangs.
_HANGS = _START + """\

    class Hangs(tf.keras.Sequential):
      def {method}(self, data):
        if self.hangs:
          print("hangs", flush=True)
          threading.Event().wait()
        return super().{method}(data)

    model = new_model(Hangs, run_eagerly=True)
    model.hangs = False
    data = tf.data.Dataset.from_tensor_slices((X, X[:, :1])).batch(1).filter(
        lambda *_: True)
    dog = cluster.StepWatchdog(CLUSTER, limit=8.0)
    model.fit(data, validation_data=data, verbose=0, callbacks=[dog], epochs=3)
    assert not dog._watcher._watches, dog._watcher._watches
    model.hangs = True
    model.fit(data, validation_data=data, verbose=0, callbacks=[dog])
    print("not reached", flush=True)
    """


def new_dog(limit: float = _GENEROUS) -> watchdog.StepWatchdog:
  return watchdog.StepWatchdog(_CLUSTER, limit)


class StepWatchdogTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.end = self.enter_context(mock.patch.object(os, "_exit"))
    self.enter_context(mock.patch.object(watchdog, "_LINGER_SECONDS", _TINY))

  def assert_ends(self, dog):
    """Waits for the thread, which ends when there is nothing to watch."""
    self.assertEmpty(dog._watcher._watches)
    thread = dog._watcher._thread
    if thread is not None:
      thread.join(_GENEROUS)
      self.assertFalse(thread.is_alive())
    self.end.assert_not_called()

  @parameterized.parameters(0, -1.5, float("nan"), float("inf"), True, None,
                            "x")
  def test_bad_limit(self, limit):
    with self.assertRaisesRegex(
        errors.InputError,
        rf"`limit` \({limit!r}\) must be a number of seconds above 0"):
      watchdog.StepWatchdog({"worker": ["a:1"]}, limit)

  def test_bad_cluster(self):
    with self.assertRaisesRegex(errors.InputError, r"`cluster` \(5\)"):
      watchdog.StepWatchdog(5, 1.0)

  def test_a_watchdog_that_is_gone_has_no_thread(self):
    threads = []
    for _ in range(20):
      dog = new_dog(limit=1e6)
      with dog:
        threads.append(dog._watcher._thread)
    del dog
    for thread in threads:
      thread.join(_GENEROUS)
      self.assertFalse(thread.is_alive())

  def test_one_machine(self):
    dog = watchdog.StepWatchdog(None, _TINY)
    ended = threading.Event()
    self.end.side_effect = lambda code: ended.set()
    with contextlib.redirect_stderr(io.StringIO()) as said, dog:
      self.assertTrue(ended.wait(_GENEROUS))
    self.assertRegex(said.getvalue(),
                     "a step has not ended after .* s: it may hang, or only")

  def test_leaves_quick_steps_alone(self):
    dog = new_dog()
    with dog:
      self.assertTrue(dog._watcher._thread.is_alive())
    self.assert_ends(dog)
    dog.on_train_batch_begin(0)
    dog.on_train_batch_end(0)
    dog.on_train_end()
    self.assert_ends(dog)

  def test_a_block_that_raises_is_not_bitten_later(self):
    dog = new_dog()
    with self.assertRaisesRegex(KeyError, "step"), dog:
      raise KeyError("step")
    self.assert_ends(dog)

  def test_evaluate_and_predict_are_watched_too(self):
    dog = new_dog()
    for phase in ("test", "predict"):
      for end in ("batch_end", "end"):
        getattr(dog, f"on_{phase}_begin")()
        getattr(dog, f"on_{phase}_batch_begin")(0)
        self.assertLen(dog._watcher._watches, 1, phase)
        getattr(dog, f"on_{phase}_{end}")(*[0] * (end == "batch_end"))
        self.assertEmpty(dog._watcher._watches, phase)
    self.assert_ends(dog)

  def test_beginning_again_leaves_nothing_behind(self):
    dog = new_dog()
    dog.on_train_batch_begin(0)
    dog.on_train_batch_begin(1)
    self.assertLen(dog._watcher._watches, 1)
    dog.on_train_batch_end(1)
    self.assert_ends(dog)

  def test_nested_blocks(self):
    dog = new_dog()
    with dog:
      outer = dog._watcher._watches[0]
      with dog:
        self.assertLen(dog._watcher._watches, 2)
      self.assertEqual(dog._watcher._watches, [outer])
      dog.on_train_batch_begin(0)
      dog.on_train_batch_end(0)
      self.assertEqual(dog._watcher._watches, [outer])
    self.assert_ends(dog)

  def test_ends_without_beginnings(self):
    dog = new_dog()
    dog.on_train_batch_end(0)
    dog.__exit__()
    self.assert_ends(dog)

  def test_one_thread_for_many_steps(self):
    dog, others, threads = new_dog(), set(threading.enumerate()), set()
    with mock.patch.object(watchdog, "_LINGER_SECONDS", _GENEROUS):
      for step in range(300):
        with dog:
          threads |= set(threading.enumerate())
        dog.on_train_batch_begin(step)
        threads |= set(threading.enumerate())
        dog.on_train_batch_end(step)
    self.assertEqual([thread.name for thread in threads - others],
                     [watchdog.THREAD_NAME])

  def test_threads_are_watched_each_for_itself(self):
    dog = new_dog()
    entered, leave = threading.Event(), threading.Event()

    def other():
      with dog:
        dog.on_train_batch_begin(0)
        entered.set()
        leave.wait(_GENEROUS)
        dog.on_train_batch_end(0)

    thread = threading.Thread(target=other)
    thread.start()
    self.assertTrue(entered.wait(_GENEROUS))
    with dog:
      dog.on_train_batch_begin(0)
      self.assertLen(dog._watcher._watches, 4)
      dog.on_train_batch_end(0)
    self.assertLen(dog._watcher._watches, 2)
    self.assertEqual({w.thread for w in dog._watcher._watches}, {thread.ident})
    leave.set()
    thread.join(_GENEROUS)
    self.assert_ends(dog)

  def test_a_thread_that_is_gone_is_not_waited_for(self):
    dog = new_dog(_TINY)
    begun, leave = threading.Event(), threading.Event()

    def loop():
      with mock.patch.object(dog._watcher, "_start"):
        dog.on_train_batch_begin(0)
      begun.set()
      leave.wait(_GENEROUS)

    thread = threading.Thread(target=loop)
    thread.start()
    begun.wait(_GENEROUS)
    leave.set()
    thread.join(_GENEROUS)
    dog._watcher._run()
    self.assert_ends(dog)

  def test_an_inner_call_puts_off_the_outer_step(self):
    dog = new_dog()

    def evaluate():
      dog.on_test_begin()
      dog.on_test_batch_begin(0)
      dog.on_test_batch_end(0)
      dog.on_test_end()

    def fit():
      dog.on_train_begin()
      dog.on_train_batch_begin(0)
      before, = dog._watcher._watches
      evaluate()
      after, = dog._watcher._watches
      self.assertEqual(before.call, after.call)
      self.assertGreater(after.deadline, before.deadline)
      dog.on_epoch_end(0)

    fit()
    self.assert_ends(dog)

  def test_a_new_call_forgets_those_that_raised(self):
    dog = new_dog()

    def fit():
      dog.on_train_begin()
      dog.on_train_batch_begin(0)
      raise KeyError("step")

    # Another frame, and not a `fit`, which might get the id of one that has
    # ended: here is no list of Keras' callbacks that tells them apart.
    def called_from(depth):
      return called_from(depth - 1) if depth else fit()

    for depth in range(5):
      with contextlib.suppress(KeyError):
        called_from(depth)
      self.assertLen(dog._watcher._watches, 1)
    dog.on_predict_begin()
    self.assert_ends(dog)

  def test_holds_neither_frames_nor_models(self):
    class Value:
      pass

    dog = new_dog()

    def fit(kept):
      local = Value()
      kept.append(weakref.ref(local))
      dog.on_train_batch_begin(0)
      raise KeyError("step")

    kept: list = []
    with contextlib.suppress(KeyError):
      fit(kept)
    dog.set_model(Value())
    kept += [weakref.ref(dog.model), weakref.ref(dog)]
    watcher = dog._watcher
    dog = None
    gc.collect()
    self.assertEqual([value() for value in kept], [None] * 3)
    watcher._watches.clear()

  def test_after_a_step_without_end(self):
    # As in an epoch that a dataset of unknown length ends.
    dog = new_dog(_TINY)
    put_off = threading.Event()

    def place(call):
      found = original(call)
      if found is Place.BETWEEN_STEPS:
        put_off.set()
      return found

    def on_epoch_end():
      dog._watcher._start()
      self.assertTrue(put_off.wait(_GENEROUS))
      dog.on_epoch_end(0)

    def fit():
      with mock.patch.object(dog._watcher, "_start"):
        dog.on_train_batch_begin(0)
      on_epoch_end()

    original = keras_calls.KerasCall.place
    with mock.patch.object(keras_calls.KerasCall, "place", place):
      fit()
    self.assert_ends(dog)

  def test_a_step_that_ends_while_workers_are_asked(self):
    dog = new_dog(_TINY)
    asked, go_on = threading.Event(), threading.Event()

    def silent(*_):
      asked.set()
      go_on.wait(_GENEROUS)
      return {}

    with mock.patch.object(watchdog.probing, "silent", silent):
      with dog:
        self.assertTrue(asked.wait(_GENEROUS))
      thread = dog._watcher._thread
      go_on.set()
      thread.join(_GENEROUS)
    self.assert_ends(dog)


class KerasCallTest(absltest.TestCase):

  def test_places(self):
    def on_epoch_end():
      return call.place()

    def on_train_batch_end():
      return call.place()

    def fit():
      nonlocal call
      call = keras_calls.current()
      return call.place(), on_epoch_end(), on_train_batch_end()

    call = None
    self.assertEqual(fit(), (Place.STEP, Place.BETWEEN_STEPS, Place.STEP))
    self.assertIs(call.place(), Place.ENDED)

  def test_innermost(self):
    def predict():
      return keras_calls.current()

    def fit():
      return keras_calls.current(), predict(), keras_calls.current()

    first, inner, second = fit()
    self.assertEqual(first, second)
    self.assertNotEqual(first, inner)

  def test_no_call(self):
    call = keras_calls.current()
    self.assertIsNone(call.frame_id)
    self.assertIs(call.place(), Place.STEP)

  def test_another_call_with_the_id_of_one_that_ended(self):
    class Callbacks:
      def begin(self):
        return keras_calls.current()

    def fit(old):
      callbacks = Callbacks()
      call = callbacks.begin()
      return call, old is not None and call == old and (
          old.place(), call.place())

    call, _ = fit(None)
    for _ in range(100):
      call, places = fit(call)
      if places:
        self.assertEqual(places, (Place.ENDED, Place.STEP))


class ProcessTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    scripts = {"raises": _RAISES} | {
        method: _HANGS.replace("{method}", method)
        for method in ("train_step", "test_step")}
    # They mostly wait for limits: at the same time.
    with futures.ThreadPoolExecutor() as pool:
      cls.outcomes = dict(zip(scripts, pool.map(
          python_process.run_script, scripts.values()), strict=True))

  def test_lives_on_after_calls_that_raise(self):
    outcome = self.outcomes["raises"]
    self.assertEqual((outcome.returncode, outcome.stdout), (0, "lives\n"),
                     outcome.stderr)

  @parameterized.parameters("train_step", "test_step")
  def test_a_step_that_hangs(self, method):
    outcome = self.outcomes[method]
    self.assertEqual((outcome.returncode, outcome.stdout),
                     (watchdog.EXIT_CODE, "hangs\n"), outcome.stderr)
    self.assertRegex(
        outcome.stderr, "tf_cdops: a step has not ended after 8 s: "
        r"/job:worker/task:0 at 127.0.0.1:1 can't be reached \(.*\). Ending "
        "the program")


if __name__ == "__main__":
  absltest.main()
