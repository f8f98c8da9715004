"""Tests of ReductionToOneDevice."""

import copy
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import cross_device_ops_contract as contract
from tests import python_process
from tests import test_util
from tests import virtual_devices

import tensorflow as tf

import tf_cdops

SUM, MEAN = test_util.SUM, test_util.MEAN


def weighted(tensors: list[tf.Tensor]) -> tf.Tensor:
  return tf.add_n([t * float(10**i) for i, t in enumerate(tensors)])


def greatest(tensors: list[tf.Tensor]) -> tf.Tensor:
  return tf.reduce_max(tf.stack(tensors), axis=0)


def traced_op_devices(emit: Any, *kinds: str) -> list[str]:
  """Traces `emit` and returns the devices of its ops of the given kinds."""
  def traced() -> None:
    emit()
  graph = tf.function(traced).get_concrete_function().graph
  return [op.device for op in graph.get_operations() if op.type in kinds]


class ReductionToOneDeviceContractTest(contract.Contract):

  def make(self):
    return tf_cdops.ReductionToOneDevice()


class ReductionToOneDeviceTest(parameterized.TestCase):

  @parameterized.product(fn=(weighted, greatest), reduce_op=(SUM, MEAN),
                         mode=test_util.MODES)
  def test_accumulation_fn_as_tensorflow(self, fn, reduce_op, mode):
    def emit(kind: Any) -> list[Any]:
      ops = kind(accumulation_fn=fn)
      value, one = contract.numbers(3), contract.numbers(1)
      return [ops.reduce(reduce_op, value, value),
              ops.reduce(reduce_op, one, one),
              *ops.batch_reduce(reduce_op, [(value, one), (one, value)])]
    results = test_util.run(mode, lambda: emit(tf_cdops.ReductionToOneDevice))
    self.assertEqual(results, test_util.run(
        mode, lambda: emit(tf.distribute.ReductionToOneDevice)))
    total = {weighted: 321.0, greatest: 3.0}[fn]
    self.assertEqual(results[0].arrays[0][0],
                     total / 3 if reduce_op == MEAN else total)

  def test_accumulation_fn_gets_a_list_of_tensors(self):
    got = []
    def record(tensors: list[tf.Tensor]) -> tf.Tensor:
      got.append(tensors)
      return tf.add_n(tensors)
    strategy = tf.distribute.MirroredStrategy(virtual_devices.names(2))
    with strategy.scope():
      variable = tf.Variable(1.0)
    ops = tf_cdops.ReductionToOneDevice(accumulation_fn=record)
    ops.reduce(SUM, variable, variable)
    ops.reduce(SUM, contract.numbers(3), "CPU:0")
    self.assertEqual([(type(tensors), len(tensors)) for tensors in got],
                     [(list, 2), (list, 3)])
    for tensors in got:
      for tensor in tensors:
        self.assertIsInstance(tensor, tf.Tensor)

  def test_accumulation_fn_never_gets_slices(self):
    ops = tf_cdops.ReductionToOneDevice(accumulation_fn=greatest)
    value = test_util.per_replica_slices(
        ([[1.]], [0], [2, 1]), ([[2.]], [0], [2, 1]))
    result = ops.reduce(SUM, value, "CPU:0")
    self.assertEqual(tf.convert_to_tensor(result).numpy().tolist(), [[3], [0]])

  @parameterized.parameters(
      ("/cpu:3", 3), ("CPU:2", 2), (virtual_devices.names(6)[5], 5), (None, 1))
  def test_sums_and_divides_on_the_device(self, reduce_to_device, index):
    ops = tf_cdops.ReductionToOneDevice(reduce_to_device)
    destinations = tf.distribute.MirroredStrategy(["CPU:1", "CPU:0"])
    with destinations.scope():
      variable = tf.Variable(0.0)
    def dense() -> Any:
      return ops.reduce(MEAN, contract.numbers(3), variable)
    def sparse() -> Any:
      value = test_util.per_replica_slices(([[1.]], [0]), ([[2.]], [0]))
      return ops.reduce(MEAN, value, variable)
    for emit, kinds, count in ((dense, ("AddN", "RealDiv"), 2),
                               (sparse, ("ConcatV2", "RealDiv"), 3)):
      devices = traced_op_devices(emit, *kinds)
      self.assertLen(devices, count)
      for device in devices:
        spec = tf.DeviceSpec.from_string(device)
        self.assertEqual((spec.device_type, spec.device_index), ("CPU", index))

  @parameterized.product(mode=test_util.MODES, reduce_op=(SUM, MEAN))
  def test_device_changes_no_result(self, mode, reduce_op):
    def emit(kind: Any) -> list[Any]:
      ops = kind(reduce_to_device="/cpu:3")
      sparse = test_util.per_replica_slices(([[1.]], [0]), ([[2.]], [1]))
      pairs = [(contract.numbers(3), sparse), (sparse, contract.numbers(3)),
               (contract.numbers(1), sparse)]
      return ops.batch_reduce(reduce_op, pairs)
    self.assertEqual(
        test_util.run(mode, lambda: emit(tf_cdops.ReductionToOneDevice)),
        test_util.run(mode, lambda: emit(
            tf.distribute.ReductionToOneDevice)))

  def test_gathers_on_the_device(self):
    strategy = tf.distribute.MirroredStrategy(
        virtual_devices.names(2),
        cross_device_ops=tf_cdops.ReductionToOneDevice("/cpu:3"))
    devices = traced_op_devices(
        lambda: strategy.gather(contract.numbers(2), 0), "ConcatV2")
    self.assertEqual(
        [tf.DeviceSpec.from_string(d).device_index for d in devices], [3])

  def test_deep_copy_keeps_the_configuration(self):
    ops = copy.deepcopy(tf_cdops.ReductionToOneDevice("/cpu:3", weighted))
    self.assertEqual(ops.reduce_to_device, "/cpu:3")
    self.assertIs(ops.accumulation_fn, weighted)

  @parameterized.parameters(
      ({}, "ReductionToOneDevice(reduce_to_device=None)"),
      ({"reduce_to_device": "/cpu:3"},
       "ReductionToOneDevice(reduce_to_device='/cpu:3')"),
      ({"accumulation_fn": tf.math.add_n},
       "ReductionToOneDevice(reduce_to_device=None)"),
      ({"accumulation_fn": weighted},
       "ReductionToOneDevice(reduce_to_device=None, "
       f"accumulation_fn={weighted!r})"))
  def test_repr(self, kwargs, text):
    self.assertEqual(repr(tf_cdops.ReductionToOneDevice(**kwargs)), text)

  def test_is_silent_after_the_first_step(self):
    ops = tf_cdops.ReductionToOneDevice()
    value = contract.numbers(2)
    ops.reduce(SUM, value, value)
    with self.assertNoLogs("absl", "DEBUG"):
      for _ in range(3):
        ops.reduce(SUM, value, value)

  def test_before_devices_are_configured_and_after(self):
    """In a process of its own, since earlier tests have configured them."""
    outcome = python_process.run_script("""
        from absl import logging
        import tensorflow as tf
        import tf_cdops
        present = tf_cdops.ReductionToOneDevice("/cpu:1")
        absent = tf_cdops.ReductionToOneDevice("/gpu:7")
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * 2)
        op = tf.distribute.ReduceOp.SUM
        logging.set_verbosity(logging.INFO)
        logging.use_absl_handler()
        ops = tf_cdops.ReductionToOneDevice("/cpu:0")
        for i in range(5):
          ops.reduce(op, tf.fill([2], i), "/cpu:1")
        print(float(present.reduce(op, 3.0, "/cpu:1")))
        try:
          absent.reduce(op, 3.0, "/cpu:1")
        except ValueError as error:
          print(error)
        """)
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    with self.subTest("the constructor leaves devices open to configuration"):
      self.assertRegex(
          outcome.stdout,
          r"^3\.0\n`reduce_to_device` \('/gpu:7'\) must be a device of this "
          r"program; choose one of /device:CPU:0, /device:CPU:1\.\n$")
    with self.subTest("says once where it sums"):
      said = [line for line in outcome.stderr.splitlines()
              if "ReductionToOneDevice" in line]
      self.assertLen(said, 1)
      self.assertRegex(
          said[0], r"(?i)sums on \S*cpu:0, then copies to \S*cpu:1\.$")


if __name__ == "__main__":
  absltest.main()
