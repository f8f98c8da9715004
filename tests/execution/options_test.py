"""Tests of tf.distribute's CommunicationOptions."""

from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import class_util
from tests import python_process
from tests import test_util

import tensorflow as tf

SUM = test_util.SUM
REPLICAS = class_util.REPLICAS
make, vectors = class_util.make, class_util.vectors
batch_reduce, arrays = class_util.batch_reduce, class_util.arrays
sums, traced, kind = class_util.sums, class_util.traced, class_util.kind


class OptionsTest(parameterized.TestCase):

  def attributes(self, implementation: str, **kwargs: Any) -> set[Any]:
    """Returns the hints and timeouts of the collective ops of a batch."""
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation[
            implementation], **kwargs)
    emitted = kind(traced(lambda: batch_reduce(
        make("collective"), SUM, vectors([3, 5]), options)),
                   "CollectiveReduceV2")
    self.assertLen(emitted, REPLICAS)
    return {(op.get_attr("communication_hint").decode(),
             op.get_attr("timeout_seconds")) for op in emitted}

  @parameterized.parameters(
      ("AUTO", {}, ("auto", 0.0)),
      ("RING", {}, ("ring", 0.0)))
  def test_reach_the_collective_ops(self, implementation, kwargs, expected):
    self.assertEqual(self.attributes(implementation, **kwargs), {expected})

  def test_a_timeout_is_said_once_not_to_be_heeded(self):
    outcome = python_process.run_script("""
        from tests import virtual_devices
        import tensorflow as tf
        import tf_cdops

        value = virtual_devices.per_replica([tf.ones([3])] * 2)
        ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="collective")
        options = tf.distribute.experimental.CommunicationOptions(
            timeout_seconds=7.5)
        step = tf.function(lambda: [
            ops.reduce(tf.distribute.ReduceOp.SUM, value, value, options)
            for _ in range(2)])
        print({op.get_attr("timeout_seconds")
               for op in step.get_concrete_function().graph.get_operations()
               if op.type == "CollectiveReduceV2"})
        """)
    self.assertEqual(outcome.stdout, "{0.0}\n", outcome.stderr)
    self.assertRegex(outcome.stderr, r"`timeout_seconds` \(7.5\) isn't heeded"
                     r".*StepWatchdog.*RunOptions")
    self.assertEqual(outcome.stderr.count("timeout_seconds"), 1)

  def test_nccl_is_ignored_on_cpus(self):
    self.assertEqual(self.attributes("NCCL"), {("auto", 0.0)})
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=(
            tf.distribute.experimental.CommunicationImplementation.NCCL))
    values = vectors([3, 5])
    self.assertEqual(
        arrays(batch_reduce(make("collective"), SUM, values, options)),
        sums(values))


if __name__ == "__main__":
  absltest.main()
