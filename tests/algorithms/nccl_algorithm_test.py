"""Our NCCL graphs can't hang, and mean the right sums.

They are traced for GPUs that aren't here, checked, and run on the CPU with
sums in the place of NCCL's ops (see nccl_graph): no NCCL kernel is run.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import nccl_graph
from tests import test_util
from tests import virtual_devices  # noqa: F401  # Before TensorFlow starts.

import numpy as np
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.execution import executor
from tf_cdops.planning import planner

SUM, MEAN = test_util.SUM, test_util.MEAN
_INTER = ("xring", "rechd", "ps", "pscpu", "psgpu")
_MODES = ("graph", "function")
# Workers, by their numbers of GPUs.
_WORKERS = ((2, 2), (4, 4), (2, 2, 2), (1, 1, 1, 1), (3, 1), (1, 2, 4))

# For each replica, its tensors.
Replicas = Sequence[Sequence[Any]]
Emit = Callable[[Replicas], Replicas]


def gpus(*counts: int) -> topology_lib.Topology:
  """Returns a worker for each count, with so many GPUs."""
  return topology_lib.Topology.from_devices(
      f"/job:worker/replica:0/task:{task}/device:GPU:{index}"
      for task, count in enumerate(counts) for index in range(count))


def numbers(replicas: int, *shapes: Sequence[int],
            dtype: Any = tf.float32) -> list[list[np.ndarray]]:
  """Returns small whole numbers, another for each replica and element."""
  sizes = [int(np.prod(shape)) for shape in shapes]
  result = []
  for replica in range(replicas):
    parts = np.split(np.arange(sum(sizes)) * replicas + replica + 1,
                     np.cumsum(sizes)[:-1])
    result.append([part.reshape(shape).astype(dtype.as_numpy_dtype)
                   for part, shape in zip(parts, shapes, strict=True)])
    if dtype.is_complex:
      result[-1] = [part - 3j * part[::-1] for part in result[-1]]
      result[-1] = [part.astype(dtype.as_numpy_dtype) for part in result[-1]]
  return result


def plan(*buckets: tuple[Sequence[int], str, int]) -> planner.Plan:
  """Returns a plan of (tensors, algorithm, shards)."""
  turns = np.cumsum([0, *(shards for _, _, shards in buckets)]).tolist()
  return planner.Plan(tuple(
      planner.Bucket(tuple(tensors), algorithm, shards, turn, None)
      for (tensors, algorithm, shards), turn
      in zip(buckets, turns, strict=False)))


def emitter(topology: topology_lib.Topology, *buckets: Any,
            reduce_op: Any = SUM) -> Emit:
  """Returns what emits an all-reduce, whether its needs are met or not."""
  transposed = lambda rows: list(zip(*rows, strict=True))
  return lambda replicas: transposed(executor.all_reduce(
      plan(*buckets), transposed(replicas), topology, reduce_op))


class Trace:
  """A graph, made in one of _MODES, from one input a tensor of a replica."""

  def __init__(self, mode: str, topology: topology_lib.Topology,
               arrays: Replicas, emit: Emit, shape: Any = "as arrays"):
    """Traces `emit`; with `shape`, the arrays' own isn't known."""
    self._arrays = [array for tensors in arrays for array in tensors]
    specs = [tf.TensorSpec(array.shape if shape == "as arrays" else shape,
                           tf.as_dtype(array.dtype)) for array in self._arrays]
    def emit_flat(flat: Sequence[tf.Tensor]) -> list[tf.Tensor]:
      remaining = iter(flat)
      replicas = []
      for tensors, device in zip(arrays, topology.devices, strict=True):
        with tf.device(device):
          replicas.append([tf.identity(next(remaining)) for _ in tensors])
      return tf.nest.flatten(emit(replicas))
    if mode == "function":
      traced = tf.function(
          lambda *flat: emit_flat(flat),
          autograph=False).get_concrete_function(*specs)
      # What the function captures comes after its own inputs.
      self.inputs = traced.inputs[:len(specs)]
      self.outputs = traced.outputs
    else:
      with tf.Graph().as_default():
        self.inputs = [tf.compat.v1.placeholder(spec.dtype, spec.shape)
                       for spec in specs]
        self.outputs = emit_flat(self.inputs)

  def run(self) -> list[np.ndarray]:
    return nccl_graph.run(self.outputs, {
        tensor.name: array
        for tensor, array in zip(self.inputs, self._arrays, strict=True)})

  def groups(self) -> tuple[nccl_graph.Group, ...]:
    return nccl_graph.check(self.outputs)


class NcclTestCase(parameterized.TestCase):

  def assert_sums(self, traced: Trace, arrays: Replicas) -> None:
    """The graph can't hang; each replica gets each tensor's sum, exactly."""
    results = traced.run()
    wanted = [np.sum(np.stack(tensors), axis=0, dtype=tensors[0].dtype)
              for tensors in zip(*arrays, strict=True)] * len(arrays)
    self.assertLen(results, len(wanted))
    for result, total in zip(results, wanted, strict=True):
      self.assertEqual(result.dtype, total.dtype)
      np.testing.assert_array_equal(result, total, strict=True)

  def assert_groups(self, traced: Trace, topology: topology_lib.Topology,
                    shards: int) -> None:
    """Each worker has a group a shard, unless it has but one GPU."""
    wanted = [sorted(topology.devices[rank] for rank in ranks)
              for ranks in topology.workers if len(ranks) > 1] * shards
    self.assertCountEqual(
        [sorted(group.devices) for group in traced.groups()], wanted)


class NcclTest(NcclTestCase):

  @parameterized.product(devices=(2, 3, 4, 8), shards=(1, 2, 3), mode=_MODES)
  def test_sums(self, devices, shards, mode):
    topology, arrays = gpus(devices), numbers(devices, [13])
    traced = Trace(mode, topology, arrays,
                   emitter(topology, ([0], "nccl", shards)))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, shards)

  @parameterized.product(shape=([], [1], [2], [3, 5], [2, 1, 4]),
                         algorithm=("nccl", "nccl/xring"))
  def test_shapes(self, shape, algorithm):
    topology, arrays = gpus(3), numbers(3, shape)
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], algorithm, 3)))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, min(3, int(np.prod(shape))))

  @parameterized.product(shape=(None, [None], [None, 5]), shards=(1, 2))
  def test_unknown_shapes(self, shape, shards):
    known = [3, 5] if shape is None else [3, 5][-len(shape):]
    topology, arrays = gpus(3), numbers(3, known)
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], "nccl", shards)), shape)
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, shards)

  @parameterized.parameters("nccl", "nccl/xring")
  def test_nothing_to_sum(self, algorithm):
    for topology, shape in ((gpus(1), [4]), (gpus(2), [0]), (gpus(2, 1), [0])):
      arrays = numbers(len(topology.devices), shape)
      traced = Trace("graph", topology, arrays,
                     emitter(topology, ([0], algorithm, 2)))
      self.assert_sums(traced, arrays)
      self.assertEmpty(traced.groups())

  @parameterized.product(mode=_MODES, devices=(2, 4))
  def test_buckets(self, mode, devices):
    topology = gpus(devices)
    arrays = numbers(devices, [7], [2, 3], [], [5], [1])
    traced = Trace(mode, topology, arrays, emitter(
        topology, ([4], "nccl", 1), ([2, 3], "nccl", 2), ([0, 1], "nccl", 3)))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, 6)

  def test_buckets_are_launched_in_the_order_of_the_plan(self):
    topology, arrays = gpus(2), numbers(2, [7], [5], [3])
    traced = Trace("graph", topology, arrays, emitter(
        topology, ([1], "nccl", 1), ([2], "nccl", 1), ([0], "nccl", 1)))
    self.assertEqual([group.ops[0].outputs[0].shape
                      for group in traced.groups()], [[5], [3], [7]])

  def test_results_are_on_their_devices(self):
    topology, arrays = gpus(2, 3), numbers(5, [7], [2, 3])
    traced = Trace("graph", topology, arrays, emitter(
        topology, ([0], "nccl/ps", 2), ([1], "nccl/xring", 1)))
    self.assertEqual(
        [output.device for output in traced.outputs],
        [device for device in topology.devices for _ in range(2)])

  @parameterized.parameters(*_MODES)
  def test_mean(self, mode):
    topology, arrays = gpus(4), numbers(4, [7], [2, 3])
    traced = Trace(mode, topology, arrays, emitter(
        topology, ([1], "nccl", 1), ([0], "nccl", 2), reduce_op=MEAN))
    means = [np.mean(np.stack(tensors), axis=0)
             for tensors in zip(*arrays, strict=True)]
    for result, mean in zip(traced.run(), means * 4, strict=True):
      np.testing.assert_array_equal(result, mean)


class DtypeTest(NcclTestCase):

  @parameterized.product(
      dtype=(tf.float16, tf.float32, tf.float64, tf.int32, tf.int64,
             tf.bfloat16, tf.complex64, tf.complex128),
      algorithm=("nccl", "nccl/xring"), shards=(1, 2))
  def test_sums(self, dtype, algorithm, shards):
    topology = gpus(3) if algorithm == "nccl" else gpus(2, 1)
    arrays = numbers(3, [5], dtype=dtype)
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], algorithm, shards)))
    self.assert_sums(traced, arrays)
    carriers = {tf.bfloat16: tf.float32, tf.complex64: tf.float32,
                tf.complex128: tf.float64}
    self.assertEqual({group.dtype for group in traced.groups()},
                     {carriers.get(dtype, dtype)})

  @parameterized.parameters(tf.bfloat16, tf.complex64)
  def test_scalars_that_are_carried(self, dtype):
    topology = gpus(2)
    arrays = [[np.array(value, dtype.as_numpy_dtype)] for value in (2, 3)]
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], "nccl", 1)))
    self.assert_sums(traced, arrays)

  def test_bfloat16_is_rounded_once(self):
    topology = gpus(3)
    # 256 + 1 is 256 in bfloat16, so a sum in bfloat16 would be 256.
    arrays = [[np.array([value], tf.bfloat16.as_numpy_dtype)]
              for value in (256, 1, 1)]
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], "nccl", 1)))
    for result in traced.run():
      self.assertEqual(result.astype(np.float32).tolist(), [258.0])

  def test_buckets_of_different_dtypes(self):
    topology = gpus(2)
    arrays = [a + b for a, b in zip(
        numbers(2, [5], dtype=tf.complex64), numbers(2, [4], [3]), strict=True)]
    traced = Trace("function", topology, arrays, emitter(
        topology, ([0], "nccl", 2), ([1, 2], "nccl", 2)))
    self.assert_sums(traced, arrays)

  @parameterized.product(dtype=(tf.int8, tf.uint8, tf.int16), mode=_MODES,
                         algorithm=("nccl", "nccl/xring"))
  def test_dtypes_that_nccl_refuses(self, dtype, mode, algorithm):
    topology = gpus(2, 2) if "/" in algorithm else gpus(2)
    arrays = numbers(len(topology.devices), [5], dtype=dtype)
    with self.assertRaisesRegex(
        errors.AlgorithmError,
        f"nccl can't sum {dtype.name}; it sums float16, float32, float64, "
        "int32, int64, bfloat16, complex64, complex128: cast the values, or "
        "use another algorithm"):
      Trace(mode, topology, arrays, emitter(topology, ([0], algorithm, 1)))


class PairTest(NcclTestCase):

  # Each partner of nccl's, on even and uneven workers, whose groups differ; in
  # several shards, since the order of their collectives is what could hang.
  @parameterized.product(inter=_INTER, workers=_WORKERS, shards=(1, 3))
  def test_sums(self, inter, workers, shards):
    topology, arrays = gpus(*workers), numbers(sum(workers), [13])
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], f"nccl/{inter}", shards)))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, shards)

  @parameterized.product(inter=_INTER, workers=((2, 2), (3, 1)))
  def test_buckets_in_a_function(self, inter, workers):
    topology, arrays = gpus(*workers), numbers(4, [7], [2, 3], [5])
    traced = Trace("function", topology, arrays, emitter(
        topology, ([2], f"nccl/{inter}", 1), ([0, 1], f"nccl/{inter}", 2)))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, 3)

  @parameterized.parameters(*_INTER)
  def test_pair_on_one_worker(self, inter):
    topology, arrays = gpus(4), numbers(4, [13])
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], f"nccl/{inter}", 2)))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, 2)

  @parameterized.parameters(*_INTER)
  def test_replicas_that_alternate_between_workers(self, inter):
    names = gpus(3, 3).devices
    topology = topology_lib.Topology.from_devices(
        [names[i] for i in (0, 3, 1, 4, 2, 5)])
    arrays = numbers(6, [13])
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], f"nccl/{inter}", 2)))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, 2)

  def test_virtual_workers(self):
    names = gpus(4).devices
    topology = topology_lib.Topology.from_devices(
        names, workers=[names[:2], names[2:]])
    arrays = numbers(4, [13])
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], "nccl/pscpu", 2)))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, 2)

  @parameterized.parameters(_INTER)
  def test_nccl_beside_pairs_and_others(self, *inter):
    topology, arrays = gpus(2, 2), numbers(4, *[[5]] * (2 * len(inter)))
    buckets = []
    for i, name in enumerate(inter):
      buckets += [([2 * i], f"nccl/{name}", 2), ([2 * i + 1], name, 2)]
    traced = Trace("graph", topology, arrays, emitter(topology, *buckets))
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, 2 * len(inter))

  @parameterized.parameters((2, 2), (3, 1), (1, 1))
  def test_collective_across_workers(self, *workers):
    # Its ops have no meaning on one CPU: the NCCL part is checked, not run.
    topology, arrays = gpus(*workers), numbers(sum(workers), [7], [5])
    name = "nccl/collective"
    traced = Trace("graph", topology, arrays, emitter(
        topology, ([1], name, 1), ([0], name, 2)))
    self.assert_groups(traced, topology, 3)


class SeveralCallsTest(NcclTestCase):

  @parameterized.product(
      mode=_MODES, workers=((2,), (2, 2), (3, 1)),
      algorithms=(("nccl/xring", "nccl/ps"), ("nccl/rechd", "nccl/rechd")))
  def test_two_calls_in_one_graph(self, mode, workers, algorithms):
    topology, arrays = gpus(*workers), numbers(sum(workers), [7], [5])
    def emit(replicas):
      halves = [emitter(topology, ([0], algorithm, 2))(
          [[tensors[i]] for tensors in replicas])
                for i, algorithm in enumerate(algorithms)]
      return [a + b for a, b in zip(*halves, strict=True)]
    traced = Trace(mode, topology, arrays, emit)
    self.assert_sums(traced, arrays)
    self.assert_groups(traced, topology, 4)

  def test_second_call_fetched_alone(self):
    topology, arrays = gpus(2), numbers(2, [7])
    emit = emitter(topology, ([0], "nccl", 1))
    def emit_twice(replicas):
      emit(replicas)
      return emit(replicas)
    traced = Trace("graph", topology, arrays, emit_twice)
    self.assert_sums(traced, arrays)

  @parameterized.parameters(*_MODES)
  def test_sum_of_a_sum(self, mode):
    topology, arrays = gpus(3), numbers(3, [7])
    emit = emitter(topology, ([0], "nccl", 2))
    traced = Trace(mode, topology, arrays, lambda x: emit(emit(x)))
    total = 3 * np.sum([tensor for tensor, in arrays], axis=0)
    for result in traced.run():
      np.testing.assert_array_equal(result, total)

  @parameterized.product(workers=((2, 2), (1, 2)))
  def test_calls_on_some_of_the_devices(self, workers):
    whole = gpus(*workers)
    last = topology_lib.Topology.from_devices(whole.devices[-2:])
    arrays = numbers(len(whole.devices), [7], [5])
    def emit(replicas):
      first = emitter(whole, ([0], "nccl/ps", 1), ([1], "nccl/ps", 1))(replicas)
      return emitter(last, ([0, 1], "nccl", 1))(first[-2:])
    traced = Trace("graph", whole, arrays, emit)
    totals = [2 * np.sum(tensors, axis=0)
              for tensors in zip(*arrays, strict=True)]
    for result, total in zip(traced.run(), totals * 2, strict=True):
      np.testing.assert_array_equal(result, total)

  @parameterized.parameters(*_MODES)
  def test_names_differ_between_graphs(self, mode):
    topology, arrays = gpus(2), numbers(2, [7])
    emit = emitter(topology, ([0], "nccl", 2))
    names = [group.shared_name for _ in range(3)
             for group in Trace(mode, topology, arrays, emit).groups()]
    self.assertLen(set(names), 6)


class SideBySideTest(NcclTestCase):

  # As hierarchical's documented steps say: intra's once, not once a worker.
  def test_workers_do_not_wait_for_each_other(self):
    topology, arrays = gpus(2, 2), numbers(4, [7])
    traced = Trace("graph", topology, arrays,
                   emitter(topology, ([0], "nccl/ps", 1)))
    for group in traced.groups():
      before = nccl_graph.needed(group.ops)
      self.assertLen([op for op in before if op.type == "NcclAllReduce"], 2)


class FunctionInFunctionTest(NcclTestCase):
  """A launch in a graph, and one in a function or branch that it calls.

  The checker can't look into the function, but the call is one op: unless it
  and the other launch are ordered, two devices may launch them in two orders.
  """

  def setUp(self):
    super().setUp()
    self._topology = gpus(2)

  def _sums(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
    emit = emitter(self._topology, ([0], "nccl", 1))
    return tf.nest.flatten(emit([[tensor] for tensor in tensors]))

  def assert_ordered(self, emit: Callable[..., list[tf.Tensor]]) -> None:
    spec = tf.TensorSpec([4], tf.float32)
    graph = tf.function(
        emit, autograph=False).get_concrete_function(spec, spec).graph
    calls = [op for op in graph.get_operations()
             if op.type in ("StatefulPartitionedCall", "If", "While")]
    launches = [op for op in graph.get_operations()
                if op.type == "NcclAllReduce"]
    self.assertLen(calls, 1)
    self.assertLen(launches, 2)
    for one, other in itertools.product(calls, launches):
      self.assertTrue(one in nccl_graph.needed([other]) or
                      other in nccl_graph.needed([one]))

  def test_function_after(self):
    inner = tf.function(self._sums, autograph=False)
    self.assert_ordered(lambda *x: self._sums(*x) + inner(*x))

  def test_branch_after(self):
    self.assert_ordered(lambda *x: self._sums(*x) + tf.cond(
        x[0][0] > 0.0, lambda: self._sums(*x), lambda: list(x)))

  def test_function_before(self):
    inner = tf.function(self._sums, autograph=False)
    self.assert_ordered(lambda *x: inner(*x) + self._sums(*x))

  def test_function_after_that_was_traced_before(self):
    inner = tf.function(self._sums, autograph=False)
    inner.get_concrete_function(*[tf.TensorSpec([4], tf.float32)] * 2)
    self.assert_ordered(lambda *x: self._sums(*x) + inner(*x))

  def test_branch_before(self):
    self.assert_ordered(lambda *x: tf.cond(
        x[0][0] > 0.0, lambda: self._sums(*x), lambda: list(x))
                        + self._sums(*x))

  def test_loop_before(self):
    self.assert_ordered(lambda *x: list(tf.while_loop(
        lambda a, b: a[0] > 0.0, self._sums, x)) + self._sums(*x))


if __name__ == "__main__":
  absltest.main()
