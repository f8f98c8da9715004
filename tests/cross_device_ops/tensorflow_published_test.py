"""What TensorFlow's own published tests ask of these classes, told again.

TensorFlow 1.12 to 2.4 had a cross_device_ops_test.py. Here are its combinations
of class, arguments, devices and mode, the constructor calls word for word, and
the sums that follow. It needed GPUs. Where one is only a device among others, a
logical CPU stands for it; graphs that name GPUs of workers run with soft
placement, on the workers' CPUs; NCCL isn't run at all: its graphs are checked,
and run with sums in the place of its ops.
"""

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import nccl_graph
from tests import python_process
from tests import test_util
from tests import virtual_devices

import tensorflow as tf

import tf_cdops
from tf_cdops.base import tf_compat
from tf_cdops.cross_device_ops import nccl_all_reduce
from tf_cdops.execution import executor
from tf_cdops.registry import requirements

SUM, MEAN = test_util.SUM, test_util.MEAN
CPU = "/device:CPU:0"
# On "/cpu:0"; "/cpu:0" and "/gpu:0"; "/gpu:0" and "/gpu:1".
LOCAL = virtual_devices.names(3)
DEVICES = (LOCAL[:1], LOCAL[:2], LOCAL[1:])
MODES = ("graph", "eager")

WORKERS = ["/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"]
WORKERS_DEVICES = tuple(
    [f"{worker}/device:{name}" for worker in WORKERS for name in names]
    for names in (["CPU:0"], ["GPU:0"], ["GPU:0", "GPU:1"]))


@dataclasses.dataclass(frozen=True)
class Value:
  """A number for each replica, which follow one another."""

  first: float
  devices: tuple[str, ...]

  def total(self, reduce_op: Any) -> float:
    count = len(self.devices)
    mean = self.first + (count - 1) / 2
    return mean if reduce_op == MEAN else mean * count

  def make(self) -> Any:
    return on(self.devices, [self.first + r for r in range(len(self.devices))],
              tf_compat.PerReplica)


@dataclasses.dataclass(frozen=True)
class Destination:
  """What a call is given, and the devices that it means."""

  given: Any
  devices: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Call:
  """The results of one call; the devices and the number of each."""

  results: Sequence[Any]
  expected: Sequence[tuple[Sequence[str], float]]


def on(devices: Sequence[str], numbers: Sequence[float], kind: Any) -> Any:
  """Returns one number a device; a single one stays a tensor."""
  tensors = []
  for device, number in zip(devices, numbers, strict=True):
    with tf.device(device):
      tensors.append(tf.identity(number))
  return tensors[0] if len(tensors) == 1 else kind(tuple(tensors))


def destinations(devices: Sequence[str]) -> list[Destination]:
  """Returns all those devices, and the CPU as a tensor's and as a name."""
  home = tf_compat.full_device_name(CPU)
  return [
      Destination(on(devices, [1.0] * len(devices), tf_compat.Mirrored),
                  devices),
      Destination(on([home], [1.0], None), [home]),
      Destination(home, [home])]


def calls(ops: Any, devices: Sequence[str],
          to: Sequence[Destination]) -> Iterator[Call]:
  """Makes every call: one value, two in a batch, a broadcast."""
  one, two = Value(0.0, tuple(devices)), Value(1.0, tuple(devices))
  given = {value: value.make() for value in (one, two)}
  for reduce_op in (MEAN, SUM):
    for value, there in itertools.product((one, two), to):
      yield Call([ops.reduce(reduce_op, given[value],
                             destinations=there.given)],
                 [(there.devices, value.total(reduce_op))])
    for first, second in itertools.product(to, to):
      yield Call(
          ops.batch_reduce(reduce_op, [(given[one], first.given),
                                       (given[two], second.given)]),
          [(first.devices, one.total(reduce_op)),
           (second.devices, two.total(reduce_op))])
  for there in to:
    yield Call([ops.broadcast(tf.constant(1.0), there.given)],
               [(there.devices, 1.0)])


class PublishedTestCase(parameterized.TestCase):

  def assert_reduces(self, mode: str, ops: Any, devices: Sequence[str],
                     default_device: str | None = None, only: Any = slice(None),
                     open_session: Any = None) -> None:
    """Asserts the outcome of `calls` to those destinations, all or `only`."""
    expected: list[Any] = []
    def emit() -> list[Any]:
      with tf.device(default_device):
        made = list(calls(ops, devices, destinations(devices)[only]))
      expected.extend(itertools.chain(*(call.expected for call in made)))
      return list(itertools.chain(*(call.results for call in made)))
    results = test_util.run(mode, emit, open_session)
    self.assertGreaterEqual(len(results), 9)
    for result, (where, number) in zip(results, expected, strict=True):
      self.assertEqual(
          (result.container, result.devices, result.arrays),
          ("Mirrored" if len(where) > 1 else "one value", list(where),
           [number] * len(where)))


class OneWorkerTest(PublishedTestCase):

  @parameterized.product(
      make=(
          lambda: tf_cdops.ReductionToOneDevice(),
          lambda: tf_cdops.ReductionToOneDevice(reduce_to_device=CPU),
          lambda: tf_cdops.ReductionToOneDevice(
              accumulation_fn=tf.math.accumulate_n),
          lambda: tf_cdops.ReductionToOneDevice(
              accumulation_fn=tf.math.add_n)),
      devices=DEVICES, mode=MODES)
  def test_reduction_to_one_device(self, make, devices, mode):
    self.assert_reduces(mode, make(), devices)

  @parameterized.product(
      make=(
          lambda: tf_cdops.AllReduceCrossDeviceOps(
              "hierarchical_copy", 8, 0, 0),
          lambda: tf_cdops.AllReduceCrossDeviceOps(
              "hierarchical_copy", 0, 100, 10)),
      mode=MODES)
  def test_hierarchical_copy(self, make, mode):
    self.assert_reduces(mode, make(), DEVICES[-1])


NCCL = (
    lambda: tf_cdops.AllReduceCrossDeviceOps("nccl", 1, 0, 0),
    lambda: tf_cdops.AllReduceCrossDeviceOps("nccl", 0, 0, 0),
    lambda: tf_cdops.AllReduceCrossDeviceOps("nccl", 1),
    lambda: tf_cdops.AllReduceCrossDeviceOps("nccl", 0))


class NcclTest(PublishedTestCase):

  @parameterized.product(make=NCCL, mode=MODES)
  def test_without_gpus_only_the_all_reduce_is_refused(self, make, mode):
    ops, value = make(), Value(0.0, tuple(DEVICES[-1])).make()
    with self.assertRaisesRegex(
        ValueError, r"`algorithm` \('nccl'\) can't run on .*CPU:1, .*CPU:2: "
        "nccl needs GPU devices only; use 'ps', 'xring' or 'rechd'"):
      ops.reduce(SUM, value, destinations=value)
    self.assert_reduces(mode, ops, DEVICES[-1], only=slice(1, None))

  @parameterized.parameters(*MODES)
  def test_nccl_all_reduce_does_without_gpus(self, mode):
    self.assert_reduces(mode, tf_cdops.NcclAllReduce(), DEVICES[-1])

  @parameterized.parameters(*NCCL, lambda: tf_cdops.NcclAllReduce())
  def test_graph_for_two_gpus(self, make):
    self.pretend_that_nccl_is_here()
    gpus = [f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2)]
    ops = make()
    with tf.Graph().as_default():
      made = list(calls(ops, gpus, destinations(gpus)))
    parts = [part for call in made for result in call.results
             for part in test_util.local_results(result)]
    expected = [(device, number) for call in made
                for where, number in call.expected for device in where]
    numbers = nccl_graph.run(parts, {})
    self.assertEqual([(part.device, float(number)) for part, number
                      in zip(parts, numbers, strict=True)], expected)
    # Of 12 single values 4 are all-reduces; of 18 pairs 8 have one, 2 have two.
    both = 2 if ops._packing.num_packs == 1 else 4
    self.assertLen(nccl_graph.check(parts), 4 + 8 + both)

  def pretend_that_nccl_is_here(self) -> None:
    machine = requirements.Machine(lambda *_: True, lambda: False)
    for cached in (executor.checked_plan, nccl_all_reduce._why_not):
      cached.cache_clear()
      self.addCleanup(cached.cache_clear)
    self.enter_context(
        mock.patch.object(executor, "machine", return_value=machine))


class SeveralWorkersTest(PublishedTestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # Worker processes get this process's path.
    with mock.patch.object(
        sys, "path", [python_process.without_extras(), *sys.path]):
      cls.cluster = cls.enterClassContext(tf_cdops.LocalCluster(len(WORKERS)))

  @parameterized.product(
      make=(
          # As TensorFlow 1.12 to 1.15 have it.
          lambda: tf_cdops.MultiWorkerAllReduce(
              WORKERS, 2, ("pscpu/pscpu", 2, -1), 0, 0, 0),
          lambda: tf_cdops.MultiWorkerAllReduce(
              WORKERS, 2, ("pscpu/pscpu", 2, -1), 1, 0, 0),
          lambda: tf_cdops.MultiWorkerAllReduce(
              WORKERS, 2, ("pscpu/pscpu", 2, -1), 0, 100, 10),
          lambda: tf_cdops.MultiWorkerAllReduce(
              WORKERS, 2, [("pscpu/pscpu", 2, 100), ("xring", 2, -1)],
              0, 0, 0),
          # As TensorFlow 2.2 and 2.3 have it.
          lambda: tf_cdops.MultiWorkerAllReduce(
              WORKERS, 2, ("pscpu/pscpu", 2, -1), 0),
          lambda: tf_cdops.MultiWorkerAllReduce(
              WORKERS, 2, ("pscpu/pscpu", 2, -1), 1),
          lambda: tf_cdops.MultiWorkerAllReduce(
              WORKERS, 2, [("pscpu/pscpu", 2, 100), ("xring", 2, -1)], 0)),
      devices=WORKERS_DEVICES)
  def test_multi_worker_all_reduce(self, make, devices):
    # A GPU's ops run on its worker's CPU: that is soft placement.
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    self.assert_reduces(
        "graph", make(), devices, default_device=WORKERS[0],
        open_session=lambda: tf.compat.v1.Session(
            self.cluster.target(0), config=config))


def two_slices() -> Any:
  """Returns row 1 on the first device, rows 1 and 3 on the second."""
  return test_util.per_replica_slices(
      ([[1.0, 2.0]], [1], [5, 2]), ([[3.0, 4.0], [5.0, 6.0]], [1, 3], [5, 2]))


SUM_OF_SLICES = [[0, 0], [4, 6], [0, 0], [5, 6], [0, 0]]
MEAN_OF_SLICES = [[0, 0], [2, 3], [0, 0], [2.5, 3], [0, 0]]


class SlicesTest(parameterized.TestCase):

  @parameterized.product(
      make=(lambda: tf_cdops.ReductionToOneDevice(),
            lambda: tf_cdops.AllReduceCrossDeviceOps()),
      outcome=((SUM, SUM_OF_SLICES), (MEAN, MEAN_OF_SLICES)),
      batch=(True, False), mode=MODES)
  def test_all_reduce(self, make, outcome, batch, mode):
    reduce_op, dense = outcome
    ops, kinds = make(), []
    def emit() -> list[Any]:
      value = two_slices()
      result = (ops.batch_reduce(reduce_op, [(value, value)])[0] if batch
                else ops.reduce(reduce_op, value, value))
      kinds.extend(type(part) for part in result.values)
      return [tf.convert_to_tensor(part) for part in result.values]
    results = test_util.run(mode, emit)
    self.assertEqual(kinds, [tf.IndexedSlices] * 2)
    self.assertEqual([r.arrays for r in results], [[dense], [dense]])

  @parameterized.parameters(*MODES)
  def test_to_one_device(self, mode):
    def emit() -> list[Any]:
      result = tf_cdops.ReductionToOneDevice().reduce(
          SUM, two_slices(), "/cpu:0")
      self.assertIsInstance(result, tf.IndexedSlices)
      self.assertEqual(result.device, tf_compat.full_device_name("/cpu:0"))
      return [tf.convert_to_tensor(result)]
    (result,) = test_util.run(mode, emit)
    self.assertEqual(result.arrays, [SUM_OF_SLICES])


class DistributedVariableTest(parameterized.TestCase):

  @parameterized.product(
      make=(lambda: tf_cdops.ReductionToOneDevice(),
            lambda: tf_cdops.AllReduceCrossDeviceOps("xring")),
      batch=(True, False), mode=MODES)
  def test_mean(self, make, batch, mode):
    ops = make()
    def emit() -> list[Any]:
      with tf.distribute.MirroredStrategy(DEVICES[1]).scope():
        variable = tf.Variable(1.0)
      return [ops.batch_reduce(MEAN, [(variable, variable)])[0] if batch
              else ops.reduce(MEAN, variable, variable)]
    (result,) = test_util.run(mode, emit)
    self.assertEqual((result.kinds, result.arrays),
                     (["Tensor"] * 2, [1.0, 1.0]))

  def test_ring_is_called_xring(self):
    """TensorFlow took any name for hierarchical_copy, this one among them."""
    with self.assertRaisesRegex(
        ValueError, r"`all_reduce_alg` \('ring'\): .*Did you mean 'xring'"):
      tf_cdops.AllReduceCrossDeviceOps("ring")


if __name__ == "__main__":
  absltest.main()
