"""Tests of comparing replicas' variables."""

import threading

from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices

import numpy as np
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.execution import agreement
from tf_cdops.execution import differences

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8",
          "int32", "int64", "complex64", "complex128", "bool")


def mirrored(replicas, *values, **kwargs):
  strategy = tf.distribute.MirroredStrategy(virtual_devices.names(replicas))
  with strategy.scope():
    return [tf.Variable(value, name=f"v{i}", **kwargs)
            for i, value in enumerate(values)]


def flip(copy, element, bit=0):
  """Flips one bit of one element."""
  array = copy.numpy()
  content = bytearray(array.tobytes())
  content[element * array.itemsize + bit // 8] ^= 1 << bit % 8
  copy.assign(np.frombuffer(bytes(content), array.dtype).reshape(array.shape))


def contents(variable):
  return {copy.numpy().tobytes() for copy in variable.values}


class AgreementTest(parameterized.TestCase):

  def test_replicas_agree(self):
    variables = mirrored(
        3, *(tf.cast(tf.range(7), dtype) for dtype in DTYPES), [], 1.0,
        [np.nan, np.inf, -0.0])
    check = agreement.Agreement(variables)
    for _ in range(2):
      self.assertEqual(check.check(), "")
      self.assertEqual(check.check(repair=True), "")

  @parameterized.parameters(*DTYPES)
  def test_names_what_differs(self, dtype):
    values = [tf.zeros([2]), tf.cast(tf.reshape(tf.range(12) % 2, [3, 4]),
                                     dtype)]
    variables = mirrored(3, *values)
    check = agreement.Agreement(variables)
    flip(variables[1].values[2], 6)
    with self.assertRaisesRegex(
        errors.ReplicasDifferError,
        rf"^Replicas differ: v1 \(shape \(3, 4\), {dtype}\): replica 2 of "
        r"worker 0 \(/job:localhost/replica:0/task:0/device:CPU:2\) has \S+ "
        r"\(0x\S+\) in element \(1, 2\), where 2 of 3 replicas have \S+ "
        r"\(0x\S+\)\.$"):
      check.check()

  @parameterized.parameters(*range(32))
  def test_every_bit_counts(self, bit):
    variable, = mirrored(3, tf.random.normal([1000]))
    check = agreement.Agreement([variable])
    flip(variable.values[1], 37 * bit % 1000, bit)
    with self.assertRaisesRegex(
        RuntimeError, rf"replica 1 .* in element \({37 * bit % 1000},\)"):
      check.check()

  def test_elements_that_changed_places(self):
    variable, = mirrored(2, tf.reshape(tf.range(70000.0) % 3, [-1]))
    check = agreement.Agreement([variable])
    for far in (1, 256, 4096, 65537):
      with self.subTest(far):
        array = variable.values[0].numpy()
        array[[0, far]] = array[[far, 0]]
        variable.values[1].assign(array)
        with self.assertRaisesRegex(RuntimeError, r"in element \(0,\)"):
          check.check()

  def test_two_replicas_without_majority(self):
    variable, = mirrored(2, [1.0, 2.0])
    variable.values[0].assign([1.0, 3.0])
    for repair, end in ((False, r"\.$"),
                        (True, r"\. This can't be repaired, since no strict ")):
      with self.assertRaisesRegex(
          errors.ReplicasDifferError,
          r"v0 .*replica 1 .* has 2.0 \(0x40000000\) in element \(1,\), where "
          rf"replica 0 .* has 3.0 \(0x40400000\){end}"):
        agreement.Agreement([variable]).check(repair)

  def test_repair(self):
    large = tf.range(50000.0)  # Several parts.
    variables = mirrored(5, large, [True, False], 3.0)
    check = agreement.Agreement(variables)
    before = [contents(variable) for variable in variables]
    flip(variables[0].values[0], 3)
    flip(variables[0].values[4], 40000, 31)
    flip(variables[1].values[0], 1)
    flip(variables[2].values[3], 0)
    text = check.check(repair=True)
    self.assertRegex(text, (
        r"v0 .*replica 0 .*\(3,\), where 3 of 5 .*; v0 .*replica 4 .*"
        r"\(40000,\).*; v1 .*replica 0 .* has True .*\(1,\), where 4 of 5 "
        r".*; v2 .*replica 3 .*element \(\), where"))
    self.assertEqual([contents(variable) for variable in variables], before)
    self.assertEqual(check.check(), "")

  def test_nothing_is_repaired_if_something_cannot_be(self):
    variables = mirrored(4, [1.0], [2.0])
    variables[0].values[3].assign([5.0])
    for replica in (2, 3):
      variables[1].values[replica].assign([7.0])
    with self.assertRaisesRegex(RuntimeError, "v0 .*; v1 .* no strict major"):
      agreement.Agreement(variables).check(repair=True)
    self.assertEqual(variables[0].values[3].numpy(), [5.0])

  def test_names_some_of_many(self):
    variables = mirrored(7, *[[1.0]] * 6)
    for variable in variables:
      for i, copy in enumerate(variable.values):
        copy.assign([i])
    with self.assertRaisesRegex(
        RuntimeError, "v0 .*replica 4 .*; and 2 more replicas differ; v1 .*; "
        "and 2 more variables differ"):
      agreement.Agreement(variables).check()

  def test_those_of_replicas_alone_are_left_out(self):
    alone, = mirrored(
        2, 0.0, synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM)
    alone.values[1].assign(3.0)
    self.assertEqual(
        agreement.Agreement([alone, tf.Variable(1.0)]).check(), "")
    self.assertEqual(agreement.Agreement([]).check(), "")

  def test_refuses_what_it_cannot_compare(self):
    with self.assertRaisesRegex(ValueError,
                                r"`variables\[0\]` \(.*\) must be a variable"):
      agreement.Agreement([tf.constant(1.0)])
    with self.assertRaisesRegex(ValueError, "must be of one strategy"):
      agreement.Agreement([*mirrored(2, 1.0), *mirrored(2, 1.0)])


class ProgramsTest(absltest.TestCase):
  """Programs that have some of the replicas each, as threads."""

  def run_programs(self, action, count):
    """Runs action(program, tell) in each; returns what each returned."""
    barrier = threading.Barrier(count, timeout=60)
    board, returned = [None] * count, [None] * count

    def tell_as(program):
      def tell(mine):
        board[program] = mine
        barrier.wait()
        told = list(board)
        barrier.wait()
        return told
      return tell

    def run(program):
      returned[program] = action(program, tell_as(program))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join(60)
    return returned

  def test_repairs_from_another_program(self):
    variable, = mirrored(6, tf.range(40000.0))
    for replica in (2, 3):  # All that the second program has.
      flip(variable.values[replica], 100 * replica)
    flip(variable.values[3], 39999)

    def action(program, tell):
      copies = variable.values[2 * program:2 * program + 2]
      found = differences.find([differences.Copies("v", copies)], 2 * program,
                               tell)
      text = differences.describe(found, [f"replica {i}" for i in range(6)],
                                  tell)
      differences.repair(found, tell)
      return text

    texts = self.run_programs(action, 3)
    self.assertLen(set(texts), 1)
    self.assertRegex(texts[0], (
        r"replica 2 has 200.0\d* .* in element \(200,\), where 4 of 6 replicas "
        r"have 200.0 .*replica 3 .*element \(300,\)"))
    self.assertEqual(contents(variable),
                     {np.arange(40000, dtype="float32").tobytes()})


if __name__ == "__main__":
  absltest.main()
