"""Tests of what a replica's step calls, and of steps in two threads."""

from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import python_process
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops

SUM, MEAN = test_util.SUM, test_util.MEAN
REPLICAS = class_util.REPLICAS
make, vectors, arrays = class_util.make, class_util.vectors, class_util.arrays
strategy_of = class_util.strategy_of


class ReplicaContextTest(parameterized.TestCase):

  @parameterized.product(axis=(0, 1, -1), spec=("pscpu/pscpu#2", "collective"))
  def test_gathers_different_lengths(self, axis, spec):
    strategy = strategy_of(tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec=spec), 3)
    tensors = [np.arange(2.0 * n).reshape([n, 2] if axis == 0 else [2, n])
               for n in (1, 3, 2)]
    expected = np.concatenate(tensors, axis).tolist()
    value = virtual_devices.per_replica(tensors)
    self.assertEqual(strategy.gather(value, axis).numpy().tolist(), expected)
    @tf.function
    def step(value: Any) -> Any:
      return strategy.run(
          lambda x: tf.distribute.get_replica_context().all_gather(x, axis),
          (value,))
    self.assertEqual(arrays([step(value)]), [[expected] * 3])

  def test_an_argument_has_no_device(self):
    strategy = strategy_of(make("xring"))
    @tf.function
    def step(x: Any, prepare: Any) -> Any:
      return strategy.run(
          lambda x: tf.distribute.get_replica_context().all_reduce(
              SUM, prepare(x)), (x,))
    self.assertEqual(arrays([step(tf.constant(2.0), tf.identity)]),
                     [[2.0 * REPLICAS] * REPLICAS])
    with self.assertRaisesRegex(
        ValueError, r"`destinations` \(''\) must be a device.* "
        r"reduce tf\.identity\(value\)"):
      step(tf.constant(2.0), lambda x: x)

  def gradients(self, ops: Any, reduce_op: Any) -> list[Any]:
    """Returns d(f)/d(x, y) on each replica, through an all-reduce."""
    strategy = strategy_of(ops)
    def replica_step() -> Any:
      context = tf.distribute.get_replica_context()
      number = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
      x, y = number * [1.0, 2.0, 3.0], number * 2.0
      with tf.GradientTape() as tape:
        tape.watch((x, y))
        sum_x, sum_y = context.all_reduce(reduce_op, (x * x, y * number))
        loss = tf.reduce_sum(sum_x * number) + sum_y * sum_y
      return tape.gradient(loss, (x, y))
    results = strategy.run(tf.function(replica_step))
    return [arrays([result])[0] for result in results]

  @parameterized.product(
      spec=("collective", "xring", "pscpu/pscpu#2", "ps/xring#3"),
      reduce_op=(SUM, MEAN))
  def test_gradients_are_those_of_tensorflow(self, spec, reduce_op):
    ours = self.gradients(make(spec), reduce_op)
    self.assertEqual(ours, self.gradients(
        tf.distribute.ReductionToOneDevice(), reduce_op))
    # d(sum over replicas of f)/dx = (1 + 2 + 3 + 4) * 2x for SUM.
    self.assertEqual(ours[0][0][0], 20.0 if reduce_op == SUM else 5.0)

  @parameterized.parameters("collective", "xring")
  def test_in_a_loop_in_a_function(self, spec):
    strategy = strategy_of(make(spec))
    @tf.function
    def steps(x: Any) -> Any:
      for _ in tf.range(5):
        x = strategy.run(
            lambda x: tf.distribute.get_replica_context().all_reduce(MEAN, x)
            * 2.0, (x,))
      return x
    value = vectors([3])[0]
    self.assertEqual(arrays([steps(value)]),
                     [[[250 * 32.0, 251 * 32.0, 252 * 32.0]] * REPLICAS])


class ThreadsTest(absltest.TestCase):

  def test_two_strategies_do_not_disturb_each_other(self):
    """In a process of its own: a collective that fails spoils later ones."""
    outcome = python_process.run_script("""
        import threading
        from tests import virtual_devices
        import tensorflow as tf
        import tf_cdops

        STEPS = 10

        def work(which, spec, start, outcomes):
          # On the same devices, with batches of the same shapes.
          strategy = tf.distribute.MirroredStrategy(
              virtual_devices.names(3),
              cross_device_ops=tf_cdops.AllReduceCrossDeviceOps(
                  spec, num_packs=0))
          def step(number):
            context = tf.distribute.get_replica_context()
            mine = number * tf.cast(
                context.replica_id_in_sync_group + 1, tf.float32)
            return context.all_reduce("SUM", [mine, tf.fill([3], mine)])
          eager = lambda number: strategy.run(step, (number,))
          for run in (eager, tf.function(eager)):
            start.wait()
            for i in range(STEPS):
              for result in run(tf.constant(float(i + 100 * which))):
                outcomes += [float(tf.reduce_max(part))
                             for part in result.values]

        for specs in (("xring", "xring"), ("collective", "xring"),
                      ("collective", "collective")):
          start, outcomes = threading.Barrier(2, timeout=30), ([], [])
          threads = [threading.Thread(target=work, daemon=True, args=(
              which, specs[which], start, outcomes[which]))
                     for which in range(2)]
          for thread in threads:
            thread.start()
          for thread in threads:
            thread.join(timeout=30)
          for which, outcome in enumerate(outcomes):
            expected = [6.0 * (i + 100 * which) for _ in range(2)
                        for i in range(STEPS) for _ in range(6)]
            print(*specs, outcome == expected)
        """)
    self.assertEqual(
        outcome.stdout.splitlines(),
        ["xring xring True"] * 2 + ["collective xring True"] * 2
        + ["collective collective True"] * 2, outcome.stderr)


if __name__ == "__main__":
  absltest.main()
