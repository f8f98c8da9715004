"""Tests of the checker of NCCL graphs, on graphs that would hang.

No NCCL kernel is run here.
"""

from collections.abc import Sequence
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import nccl_graph
from tests import virtual_devices  # noqa: F401  # Before TensorFlow starts.

import numpy as np
import tensorflow as tf


def gpu(index: int, task: int = 0) -> str:
  return f"/job:worker/replica:0/task:{task}/device:GPU:{index}"


def nccl(tensor: Any, device: str, shared_name: str, num_devices: int = 2,
         reduction: str = "sum", after: Sequence[Any] = ()) -> tf.Tensor:
  with tf.device(device), tf.control_dependencies(after):
    return tf.raw_ops.NcclAllReduce(
        input=tensor, reduction=reduction, num_devices=num_devices,
        shared_name=shared_name)


def group(shared_name: str, devices: Sequence[str],
          after: Sequence[Any] = ()) -> list[tf.Tensor]:
  """Returns the sums of one complete group, not tied together."""
  return [nccl(tf.constant([float(i + 1)]), device, shared_name, len(devices),
               after=after) for i, device in enumerate(devices)]


def tie(sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
  with tf.control_dependencies(sums):
    return [tf.identity(total) for total in sums]


class GraphTestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.enter_context(tf.Graph().as_default())

  def assert_rejected(self, fetches, regex):
    with self.assertRaisesRegex(nccl_graph.NcclGraphError, regex):
      nccl_graph.check(fetches)
    with self.assertRaisesRegex(nccl_graph.NcclGraphError, regex):
      nccl_graph.run(fetches, {})


class RightGraphTest(GraphTestCase):

  def test_one_group(self):
    outputs = tie(group("a", [gpu(0), gpu(1), gpu(2)]))
    found, = nccl_graph.check(outputs)
    self.assertEqual(found.shared_name, "a")
    self.assertCountEqual(found.devices, [gpu(0), gpu(1), gpu(2)])
    self.assertEqual(found.dtype, tf.float32)
    for total in nccl_graph.run(outputs, {}):
      np.testing.assert_array_equal(total, [6.0])

  def test_no_group(self):
    with tf.device(gpu(0)):
      x = tf.compat.v1.placeholder(tf.float32, [2])
      y = x + 1.0
    self.assertEmpty(nccl_graph.check([y]))
    total, = nccl_graph.run([y], {x.name: [1.0, 2.0]})
    np.testing.assert_array_equal(total, [2.0, 3.0])

  def test_groups_in_launch_order(self):
    devices = [gpu(0), gpu(1)]
    first = group("z", devices)
    second = group("a", devices, after=first)
    third = group("m", devices, after=second)
    found = nccl_graph.check([*tie(third), *tie(first), *tie(second)])
    self.assertEqual([g.shared_name for g in found], ["z", "a", "m"])

  def test_order_by_data(self):
    first = tie(group("a", [gpu(0), gpu(1)]))
    second = tie([nccl(2.0 * x, gpu(i), "b") for i, x in enumerate(first)])
    for total in nccl_graph.run(second, {}):
      np.testing.assert_array_equal(total, [12.0])

  def test_order_device_by_device_is_enough(self):
    devices = [gpu(0), gpu(1)]
    first = group("a", devices)
    second = [nccl(x, device, "b", after=[before])
              for x, device, before in zip(first, devices, first, strict=True)]
    self.assertLen(nccl_graph.check(tie(second)), 2)

  def test_groups_without_a_common_device_need_no_order(self):
    near, far = [gpu(0), gpu(1)], [gpu(0, task=1), gpu(1, task=1)]
    outputs = [*tie(group("a", near)), *tie(group("b", far))]
    self.assertLen(nccl_graph.check(outputs), 2)

  def test_what_is_not_fetched_is_not_judged(self):
    outputs = tie(group("a", [gpu(0), gpu(1)]))
    nccl(tf.constant([1.0]), gpu(0), "alone")
    self.assertLen(nccl_graph.check(outputs), 1)
    self.assertLen(nccl_graph.run(outputs, {}), 2)

  def test_colocation_with_what_is_not_fetched(self):
    outputs = tie(group("a", [gpu(0), gpu(1)]))
    other = tf.constant(1.0, name="other")
    with tf.compat.v1.colocate_with(other):
      doubled = 2.0 * outputs[0]
    self.assertIn(b"loc:@other", doubled.op.colocation_groups())
    total, = nccl_graph.run([doubled], {})
    np.testing.assert_array_equal(total, [6.0])

  def test_what_is_only_waited_for_is_not_run(self):
    handle = tf.compat.v1.placeholder(tf.resource, [])
    fence = tf.raw_ops.VarIsInitializedOp(resource=handle)
    outputs = tie(group("a", [gpu(0), gpu(1)], after=[fence]))
    with tf.control_dependencies([fence]):
      outputs = [tf.identity(output) for output in outputs]
    self.assertLen(nccl_graph.run(outputs, {}), 2)

  def test_feed_that_is_not_needed(self):
    outputs = tie(group("a", [gpu(0), gpu(1)]))
    unused = tf.compat.v1.placeholder(tf.float32, [1])
    self.assertLen(nccl_graph.run(outputs, {unused.name: [1.0]}), 2)

  def test_one_output_has_the_inputs_of_all(self):
    inputs = [tf.compat.v1.placeholder(tf.float32, [1]) for _ in range(2)]
    outputs = tie([nccl(x, gpu(i), "a") for i, x in enumerate(inputs)])
    total, = nccl_graph.run(
        outputs[1:], {x.name: [i + 1.0] for i, x in enumerate(inputs)})
    np.testing.assert_array_equal(total, [3.0])

  def test_unknown_shapes(self):
    inputs = [tf.compat.v1.placeholder(tf.float32, shape)
              for shape in (None, [None], [2])]
    outputs = tie([nccl(x, gpu(i), "a", 3) for i, x in enumerate(inputs)])
    for total in nccl_graph.run(outputs, {x.name: [1.0, 2.0] for x in inputs}):
      np.testing.assert_array_equal(total, [3.0, 6.0])

  def test_graph_def(self):
    outputs = tie(group("a", [gpu(0), gpu(1)]))
    with tf.Graph().as_default():
      imported = tf.graph_util.import_graph_def(
          outputs[0].graph.as_graph_def(), name="there",
          return_elements=[output.name for output in outputs])
      self.assertLen(nccl_graph.check(imported), 1)
      for total in nccl_graph.run(imported, {}):
        np.testing.assert_array_equal(total, [3.0])


class IncompleteGroupTest(GraphTestCase):

  def test_op_that_is_not_there(self):
    self.assert_rejected(
        [nccl(tf.constant([1.0]), gpu(0), "a")],
        "'a' has 1 of 2 ops with all outputs fetched, and would wait for ever")

  def test_op_pruned_away(self):
    sums = group("a", [gpu(0), gpu(1), gpu(2)])
    self.assert_rejected(sums[:2], "'a' has 2 of 3 ops with all outputs")

  def test_too_many_ops(self):
    self.assert_rejected(
        [nccl(tf.constant([1.0]), gpu(i), "a") for i in range(3)],
        "'a' has 3 of 2 ops")

  def test_shared_name_used_twice(self):
    devices = [gpu(0), gpu(1)]
    first = group("a", devices)
    self.assert_rejected(tie(group("a", devices, after=first)),
                         "'a' has two ops on .*GPU:")

  def test_untied_outputs(self):
    sums = group("a", [gpu(0), gpu(1)])
    self.assert_rejected(
        sums, f"'a' has 1 of 2 ops with {sums[0].op.name} alone fetched")

  def test_one_untied_output_among_tied_ones(self):
    sums = group("a", [gpu(0), gpu(1)])
    untied = tf.identity(sums[1], name="untied")
    self.assert_rejected([*tie(sums), untied], "with untied alone fetched")

  def test_earlier_group_cut_by_an_order_device_by_device(self):
    devices = [gpu(0), gpu(1)]
    first = group("a", devices)
    second = tie([nccl(tf.constant([1.0]), device, "b", after=[before])
                  for device, before in zip(devices, first, strict=True)])
    self.assertLen(nccl_graph.check(second), 2)
    self.assert_rejected([*second, first[0]],
                         f"'a' .* with {first[0].op.name} alone")


class UnlikeOpsTest(GraphTestCase):

  def test_dtypes(self):
    sums = [nccl(tf.constant([1], dtype), gpu(i), "a")
            for i, dtype in enumerate((tf.float32, tf.int64))]
    self.assert_rejected(
        tie(sums), "'a' has more than one T: .*float32.*int64")

  def test_shapes(self):
    sums = [nccl(tf.ones(shape), gpu(i), "a")
            for i, shape in enumerate(([2], [1, 2]))]
    self.assert_rejected(
        tie(sums), r"'a' has more than one shape: \(1, 2\), \(2,\)")

  def test_shapes_of_which_the_first_is_unknown(self):
    inputs = [tf.compat.v1.placeholder(tf.float32, None), tf.ones([2]),
              tf.ones([3])]
    sums = [nccl(x, gpu(i), "a", 3) for i, x in enumerate(inputs)]
    self.assert_rejected(tie(sums), "'a' has more than one shape")

  def test_reductions(self):
    sums = [nccl(tf.constant([1.0]), gpu(i), "a", reduction=reduction)
            for i, reduction in enumerate(("sum", "max"))]
    self.assert_rejected(tie(sums), "'a' has more than one reduction")

  def test_num_devices(self):
    sums = [nccl(tf.constant([1.0]), gpu(i), "a", num_devices)
            for i, num_devices in enumerate((2, 3))]
    self.assert_rejected(tie(sums), "'a' has more than one num_devices: 2, 3")

  def test_reduction_that_cannot_be_run(self):
    outputs = tie([nccl(tf.constant([1.0]), gpu(i), "a", reduction="max")
                   for i in range(2)])
    self.assertLen(nccl_graph.check(outputs), 1)
    with self.assertRaisesRegex(nccl_graph.NcclGraphError,
                                "reduction 'max'; only sums can be run"):
      nccl_graph.run(outputs, {})


class PlacementTest(GraphTestCase):

  def test_two_ops_on_one_device(self):
    self.assert_rejected(tie(group("a", [gpu(0), gpu(1), gpu(1)])),
                         "'a' has two ops on .*task:0/device:GPU:1")

  @parameterized.parameters(
      gpu(1, task=1), "/job:worker/replica:1/task:0/device:GPU:1",
      "/job:ps/replica:0/task:0/device:GPU:1", "/device:GPU:1")
  def test_two_workers(self, other):
    self.assert_rejected(tie(group("a", [gpu(0), other])),
                         "'a' has more than one worker")

  @parameterized.parameters(
      "/job:worker/replica:0/task:0/device:CPU:0",
      "/job:worker/replica:0/task:0", "/device:GPU:*", None)
  def test_not_on_a_gpu(self, other):
    self.assert_rejected(tie(group("a", [gpu(0), other])),
                         "'a' has an op on '.*', not on a GPU")


class OrderTest(GraphTestCase):

  def test_no_order(self):
    devices = [gpu(0), gpu(1)]
    outputs = [*tie(group("a", devices)), *tie(group("b", devices))]
    self.assert_rejected(outputs, "'a' and .*'b' have no order on .*GPU:")

  def test_no_order_on_the_one_common_device(self):
    outputs = [*tie(group("a", [gpu(0), gpu(1)])),
               *tie(group("b", [gpu(1), gpu(2)]))]
    self.assert_rejected(outputs, "'a' and .*'b' have no order on .*GPU:1")

  def test_order_on_one_device_only(self):
    first = group("a", [gpu(0), gpu(1)])
    second = [nccl(tf.constant([1.0]), gpu(0), "b", after=[first[0]]),
              nccl(tf.constant([1.0]), gpu(1), "b")]
    self.assert_rejected(tie([*first, *second]),
                         "'a' and .*'b' have no order on .*GPU:1")

  def test_order_missing_between_two_of_three(self):
    devices = [gpu(0), gpu(1)]
    first = group("a", devices)
    outputs = [*tie(group("b", devices, after=first)),
               *tie(group("c", devices, after=first))]
    self.assert_rejected(outputs, "'[bc]' and .*'[bc]' have no order")

  def test_opposite_orders_on_two_devices(self):
    one = tf.constant([1.0])
    a0, b1 = nccl(one, gpu(0), "a"), nccl(one, gpu(1), "b")
    a1 = nccl(one, gpu(1), "a", after=[b1])
    b0 = nccl(one, gpu(0), "b", after=[a0])
    self.assert_rejected(tie([a0, a1, b0, b1]),
                         "each waits for the next: (.*'[ab]'){3}")

  def test_three_groups_that_wait_in_a_circle(self):
    one = tf.constant([1.0])
    firsts, seconds = [], []
    for i, name in enumerate("abc"):
      firsts.append(nccl(one, gpu(i), name))
    for i, name in enumerate("abc"):
      # Each group's second op, on the next group's device, waits for that one.
      after = (i + 1) % 3
      seconds.append(nccl(one, gpu(after), name, after=[firsts[after]]))
    self.assert_rejected(tie([*firsts, *seconds]),
                         "each waits for the next: (.*'[abc]'){4}")

  def test_op_that_waits_for_its_own_group(self):
    first = nccl(tf.constant([1.0]), gpu(0), "a")
    second = nccl(tf.constant([1.0]), gpu(1), "a", after=[first])
    self.assert_rejected([second], "each waits for the next: .*'a'.*'a'")

  def test_op_that_needs_its_own_group(self):
    first = nccl(tf.constant([1.0]), gpu(0), "a")
    self.assert_rejected([nccl(first + 1.0, gpu(1), "a")],
                         "each waits for the next: .*'a'.*'a'")


class OtherGraphsTest(GraphTestCase):

  def test_cycle_of_ops(self):
    graph_def = tf.compat.v1.GraphDef()
    for name, kind, inputs in (
        ("x", "Placeholder", []), ("enter", "Enter", ["x"]),
        ("merge", "Merge", ["enter", "next"]),
        ("next", "NextIteration", ["merge"])):
      node = graph_def.node.add(name=name, op=kind, input=inputs)
      node.attr["dtype" if kind == "Placeholder" else "T"].type = (
          tf.float32.as_datatype_enum)
    graph_def.node[1].attr["frame_name"].s = b"loop"
    graph_def.node[2].attr["N"].i = 2
    fetches = tf.graph_util.import_graph_def(
        graph_def, name="", return_elements=["merge:0"])
    self.assert_rejected(fetches, "is in a cycle of the graph")

  def test_other_nccl_ops(self):
    with tf.device(gpu(0)):
      total = tf.raw_ops.NcclReduce(input=[tf.ones([2])] * 2, reduction="sum")
    self.assert_rejected([total], "is a NcclReduce; only NcclAllReduce")

  def test_nccl_inside_a_function_that_is_called(self):
    @tf.function(autograph=False)
    def inner():
      return tie(group("a", [gpu(0), gpu(1)]))
    self.assert_rejected(inner(), "inside the function .*inner_.*can't be")

  def test_function_itself(self):
    def function():
      return tie(group("a", [gpu(0), gpu(1)]))
    concrete = tf.function(function, autograph=False).get_concrete_function()
    self.assertLen(nccl_graph.check(concrete.outputs), 1)

  def test_side_effects_of_a_function_are_needed(self):
    def function():
      total, _ = group("a", [gpu(0), gpu(1)])
      tf.print(total)
      return tf.constant(1.0)
    concrete = tf.function(function, autograph=False).get_concrete_function()
    self.assert_rejected(concrete.outputs, "'a' has 1 of 2 ops")


if __name__ == "__main__":
  absltest.main()
