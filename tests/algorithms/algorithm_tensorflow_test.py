"""Runs every all-reduce algorithm on TensorFlow, against NumPy and the trace.

Sums are exact in every dtype, so a wrong element can't hide behind rounding.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process
from tests import registrations
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops import registry
from tf_cdops.fabric import base
from tf_cdops.fabric import tensorflow as tensorflow_fabric
from tf_cdops.registry import proof

COUNTS = (*range(1, 10), 12, 16)
LENGTHS = (0, 1, 2, 7, 64, 100, 1000)
SHARDS = (1, 2, 3, 5)
DTYPES = ("float16", "bfloat16", "float32", "float64", "int64", "complex64")
# Up to where a dtype has every whole number.
EXACT = {"bfloat16": 2**8, "float16": 2**11}

ON_FABRIC = (
    *(known.name for known in tf_cdops.all_reduce_algorithms()
      if not known.modelled and not known.device_types), "everyone",
    "pscpu/pscpu", "xring/xring", "pscpu/rechd", "rechd/xring", "xring/pscpu",
    "hierarchical_copy/ps", "everyone/rechd", "xring/everyone")
NATIVE = ("collective", "ps/collective", "collective/xring")
every_algorithm = parameterized.parameters(*ON_FABRIC, *NATIVE)

# A collective that waits in vain should fail its test, not outlast it.


def everyone(fabric, values, group):
  """A third party's: sends every value everywhere; each sums for itself."""
  return [fabric.add(values, place) for place in group.places]


def topology_of(count: int, workers: int) -> tf_cdops.Topology:
  """Returns `count` devices on near-equal virtual workers."""
  names = iter(virtual_devices.names(count))
  groups = [list(itertools.islice(names, size)) for size
            in base.part_lengths(count, min(workers, count))]
  return tf_cdops.Topology.from_devices(
      virtual_devices.names(count), workers=groups)


def numbers(count: int, shape: Sequence[int], dtype: str) -> list[np.ndarray]:
  """Returns an array a replica; elements differ as far as sums are exact."""
  most = EXACT.get(dtype, 2**24) // count
  whole = 1 + np.arange(count * math.prod(shape)) % most
  if dtype == "complex64":
    whole = whole + 2j * whole[::-1]
  return list(whole.reshape(count, *shape).astype(
      tf.as_dtype(dtype).as_numpy_dtype))


def total(arrays: Sequence[np.ndarray]) -> np.ndarray:
  wide = np.result_type(arrays[0].dtype, np.int64) if (
      arrays[0].dtype.kind in "ic") else np.float64
  return sum(array.astype(wide) for array in arrays).astype(arrays[0].dtype)


def on_devices(values: Sequence[Any]) -> list[tf.Tensor]:
  placed = []
  for value, name in zip(values, virtual_devices.names(len(values)),
                         strict=True):
    with tf.device(name):
      placed.append(tf.identity(value))
  return placed


def all_reduce(values: Sequence[Any], name: str, shards: int = 1,
               **kwargs: Any) -> list[tf.Tensor]:
  """All-reduces values, each of which is put on its device first."""
  return tf_cdops.all_reduce(on_devices(values), (name, shards),
                             **kwargs)


@dataclasses.dataclass(frozen=True)
class Case:
  count: int
  length: int
  shards: int
  dtype: str
  workers: int


# Every count, length, number of shards and dtype, and each count up to 4 with
# two of them; many devices in many shards would take the longest.
CASES = tuple(
    Case(count, LENGTHS[(6 - i - 2 * turn) % 7], SHARDS[(i + turn) % 4],
         DTYPES[(i + 3 * turn) % 6], 1 + (i + turn) % 4)
    for turn in range(2) for i, count in enumerate(reversed(COUNTS))
    if turn == 0 or count <= 4)


class AlgorithmTestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.enter_context(registrations.undone())
    tf_cdops.register_all_reduce(
        "everyone", description="All to all.")(everyone)

  def assert_sums(self, results: Sequence[Any], arrays: Sequence[np.ndarray],
                  where: object = "") -> None:
    """Asserts that each result is the sum of the arrays, bit by bit."""
    expected = total(arrays)
    self.assertLen(results, len(arrays))
    for result in results:
      got = np.asarray(result)
      self.assertEqual((got.dtype, got.shape), (expected.dtype, expected.shape),
                       where)
      self.assertEqual(got.tobytes(), expected.tobytes(), where)


class SumTest(AlgorithmTestCase):

  def test_cases_cover_everything(self):
    counts, lengths, shards, dtypes, _ = map(
        set, zip(*map(dataclasses.astuple, CASES), strict=True))
    self.assertEqual((counts, lengths, shards, dtypes),
                     (set(COUNTS), set(LENGTHS), set(SHARDS), set(DTYPES)))

  @every_algorithm
  def test_sums_exactly(self, name):
    inputs = [numbers(case.count, [case.length], case.dtype) for case in CASES]

    @tf.function(autograph=False)
    def step(batch):
      return [all_reduce(values, name, case.shards,
                         topology=topology_of(case.count, case.workers))
              for values, case in zip(batch, CASES, strict=True)]

    for results, arrays, case in zip(step(inputs), inputs, CASES, strict=True):
      self.assert_sums(results, arrays, case)

  # Not of "everyone", which sums on every device: AddN may start with any term.
  @parameterized.parameters(*(name for name in (*ON_FABRIC, *NATIVE)
                              if "everyone" not in name))
  def test_replicas_get_the_same_bits_where_sums_round(self, name):
    values = np.random.default_rng(0).normal(size=(7, 100)).astype(np.float32)
    results = tf.function(
        lambda *values: all_reduce(values, name, 3,
                                   topology=topology_of(7, 2)),
        autograph=False)(*values)
    self.assertLen({result.numpy().tobytes() for result in results}, 1)
    np.testing.assert_allclose(results[0], values.sum(0), rtol=1e-4, atol=1e-5)

  # Each algorithm's ops in each mode: a session has other devices, and eager
  # code runs TensorFlow's engines in a function of its own.
  @parameterized.product(name=(*ON_FABRIC, *NATIVE), mode=test_util.MODES)
  def test_modes(self, name, mode):
    shapes = ((), (5,), (2, 3), (2, 1, 3), (0,), (3, 0))
    count = test_util.GRAPH_DEVICES
    inputs = [numbers(count, shape, dtype) for shape, dtype
              in zip(shapes, DTYPES, strict=True)]
    emit = lambda: [
        tensor for i, arrays in enumerate(inputs)
        for tensor in all_reduce(arrays, name, 1 + i % 3,
                                 topology=topology_of(count, 1 + i % 2))]
    results = iter(test_util.run(mode, emit))
    for arrays in inputs:
      for device in virtual_devices.names(count):
        result = next(results)
        self.assertEqual(result.devices, [device])
        self.assertEqual(result.dtypes, [arrays[0].dtype.name])
        self.assertEqual(result.arrays, [total(arrays).tolist()])

  # The division follows the sum, whatever made it: it is each dtype's, and each
  # mode's; one algorithm of ops and one of TensorFlow's engines will do.
  @parameterized.parameters(
      *itertools.product(("xring#2", "collective#2"), DTYPES,
                         ("eager", "function")),
      *itertools.product(("ps", "rechd", "auto"), ("float32",),
                         ("eager", "function")))
  def test_mean(self, name, dtype, mode):
    arrays = numbers(4, [2, 3], dtype)
    results = test_util.run(mode, lambda: tf_cdops.all_reduce(
        on_devices(arrays), name, reduce_op=test_util.MEAN))
    expected = total(arrays) / np.asarray(4).astype(arrays[0].dtype)
    for result, device in zip(results, virtual_devices.names(4), strict=True):
      self.assertEqual(result.devices, [device])
      self.assertEqual(result.dtypes,
                       ["float64" if dtype == "int64" else dtype])
      self.assertEqual(result.arrays, [expected.tolist()])

  # A worker with one device doesn't split, so its tensor keeps its shape, while
  # others' parts are vectors.
  @parameterized.product(sizes=((1, 2), (3, 1), (1, 1, 2)),
                         mode=("eager", "function"))
  def test_workers_with_other_numbers_of_devices(self, sizes, mode):
    names = iter(virtual_devices.names(sum(sizes)))
    topology = tf_cdops.Topology.from_devices(
        virtual_devices.names(sum(sizes)),
        workers=[list(itertools.islice(names, size)) for size in sizes])
    intras = [name for name in ON_FABRIC if "/" not in name]
    specs = [f"{intra}/{inter}#{shards}" for intra in intras
             for inter in (*intras, "collective") for shards in (1, 2)
             if mode == "function" or shards == 1]
    inputs = numbers(sum(sizes), (4, 6), "float32")
    results = iter(test_util.run(mode, lambda: [
        tensor for spec in specs for tensor in tf_cdops.all_reduce(
            on_devices(inputs), spec, topology=topology)]))
    for spec in specs:
      for _ in range(sum(sizes)):
        self.assertEqual(next(results).arrays, [total(inputs).tolist()], spec)

  def test_mean_of_one(self):
    result, = tf_cdops.all_reduce(on_devices([np.int64(7)]), "xring",
                                  reduce_op=test_util.MEAN)
    self.assertEqual((result.dtype, result.numpy()), (tf.float64, 7.0))

  @parameterized.parameters("ps", "pscpu/rechd", "collective")
  def test_variables(self, name):
    variables = []
    for i, device in enumerate(virtual_devices.names(3)):
      with tf.device(device):
        variables.append(tf.Variable([i + 1.0, 10.0 * i]))
    emit = lambda: tf_cdops.all_reduce(variables, name)
    for mode in ("eager", "function"):
      results = test_util.run(mode, emit)
      self.assertEqual([result.arrays for result in results],
                       [[[6.0, 30.0]]] * 3)
      self.assertEqual([device for result in results
                        for device in result.devices],
                       virtual_devices.names(3))


def check_unknown_shapes(name: str) -> str:
  """Raises unless one traced function sums arrays of any shape."""
  for shape in (tf.TensorShape([None]), tf.TensorShape(None)):
    step = tf.function(
        lambda *values: all_reduce(values, name, 2,
                                   topology=topology_of(5, 2)),
        autograph=False, input_signature=[tf.TensorSpec(shape)] * 5)
    shapes = [(7,), (100,), (1,), (0,), (7,)]
    if shape.rank is None:
      shapes += [(2, 3), (3, 2), ()]
    for actual in shapes:
      arrays = numbers(5, actual, "float32")
      for result in step(*arrays):
        np.testing.assert_array_equal(result.numpy(), total(arrays),
                                      err_msg=f"{name} {actual}", strict=True)
  return f"{name} is right"


class UnknownShapeTest(AlgorithmTestCase):

  @parameterized.parameters(*ON_FABRIC)
  def test_lengths_known_only_when_run(self, name):
    self.assertEqual(check_unknown_shapes(name), f"{name} is right")

  def test_lengths_known_only_when_run_natively(self):
    # Apart: when one collective fails, every later one in the process does.
    done = python_process.run_script(f"""
        from tests.algorithms import algorithm_tensorflow_test as test
        for name in {NATIVE}:
          print(test.check_unknown_shapes(name), flush=True)
    """)
    self.assertEqual(
        done.stdout.splitlines(), [f"{name} is right" for name in NATIVE],
        done.stderr[-2000:])

  @parameterized.product(name=ON_FABRIC + NATIVE, unknown=(0, 2))
  def test_length_known_for_some_replicas(self, name, unknown):
    signature = [tf.TensorSpec([None if i == unknown else 1])
                 for i in range(3)]
    step = tf.function(
        lambda *values: all_reduce(values, name, 2,
                                   topology=topology_of(3, 2)),
        autograph=False, input_signature=signature)
    arrays = numbers(3, [1], "float32")
    self.assert_sums(step(*arrays), arrays)


class NoDeviceTest(AlgorithmTestCase):
  """A function's arguments have no device: TensorFlow doesn't say."""

  def run_step(self, name, count, reduce_op=test_util.SUM):
    devices = []

    @tf.function(autograph=False)
    def step(values):
      self.assertEqual([value.device for value in values], [""] * len(values))
      results = tf_cdops.all_reduce(values, name,
                                    reduce_op=reduce_op)
      devices.extend(result.device for result in results)
      return results

    arrays = numbers(count, [5], "float32")
    return step(list(arrays)), arrays, devices

  @parameterized.parameters("ps", "xring", "rechd", "collective", "auto",
                            "pscpu/pscpu")
  def test_the_strategy_has_them(self, name):
    strategy = tf.distribute.MirroredStrategy(virtual_devices.names(4))
    with strategy.scope():
      results, arrays, devices = self.run_step(name, 4)
    self.assert_sums(results, arrays)
    self.assertEqual(devices, virtual_devices.names(4))

  @parameterized.parameters("ps", "xring#3", "collective", "auto", "nccl")
  def test_nobody_has_them(self, name):
    results, arrays, devices = self.run_step(name, 4)
    self.assert_sums(results, arrays)
    self.assertEqual(devices, [""] * 4)

  def test_the_strategy_has_another_number(self):
    strategy = tf.distribute.MirroredStrategy(virtual_devices.names(3))
    with strategy.scope():
      results, arrays, devices = self.run_step("xring", 4)
    self.assert_sums(results, arrays)
    self.assertEqual(devices, [""] * 4)

  def test_mean(self):
    results, arrays, _ = self.run_step("ps", 4, test_util.MEAN)
    for result in results:
      np.testing.assert_array_equal(result, total(arrays) / 4)

  @parameterized.parameters("ps", "xring", "collective")
  def test_a_distributed_batch(self, name):
    strategy = tf.distribute.MirroredStrategy(virtual_devices.names(4))
    arrays = numbers(4, [5], "float32")
    batch = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            arrays[context.replica_id_in_sync_group]))
    devices = []

    @tf.function(autograph=False)
    def step(distributed):
      results = tf_cdops.all_reduce(distributed.values, name)
      devices.extend(result.device for result in results)
      return results

    with strategy.scope():
      self.assert_sums(step(batch), arrays)
    self.assertEqual(devices, virtual_devices.names(4))

  def test_the_topology_has_them(self):
    arrays = numbers(4, [5], "float32")
    topology = topology_of(4, 2)
    results = tf.function(
        lambda *values: tf_cdops.all_reduce(values, "xring/ps",
                                            topology=topology),
        autograph=False)(*arrays)
    self.assert_sums(results, arrays)


class CollectiveOrderTest(AlgorithmTestCase):
  """Collectives wait for each other; two in different orders never end."""

  def test_many_in_a_row(self):
    for i in range(40):
      count = 2 + i % 3
      arrays = numbers(count, [10], "float32")
      self.assert_sums(all_reduce(arrays, "collective", 1 + i % 2), arrays)

  @parameterized.parameters("function", "graph")
  def test_several_groups_in_one_graph(self, mode):
    groups = ([0, 1, 2], [2, 1, 0], [1, 2, 3], [0, 3], [0, 1, 2])
    names = virtual_devices.names(test_util.GRAPH_DEVICES)
    arrays = numbers(len(names), [10], "float32")

    def emit():
      placed = on_devices(arrays)
      return [tensor for _ in range(2) for group in groups
              for tensor in tf_cdops.all_reduce(
                  [placed[i] for i in group], "collective#2")]

    for _ in range(2):
      results = iter(test_util.run(mode, emit))
      for group in groups * 2:
        expected = total([arrays[i] for i in group]).tolist()
        for i in group:
          result = next(results)
          self.assertEqual((result.arrays, result.devices),
                           ([expected], [names[i]]))

  def test_same_function_again_and_again(self):
    step = tf.function(
        lambda values: [all_reduce(values, "collective"),
                        all_reduce(values[:2], "collective")],
        autograph=False)
    arrays = numbers(3, [10], "float32")
    for _ in range(100):
      three, two = step(arrays)
    self.assert_sums(three, arrays)
    self.assert_sums(two, arrays[:2])

  def test_inside_a_loop_and_a_branch(self):
    @tf.function(autograph=False)
    def step(times, branch):
      once = lambda values: all_reduce(values, "collective")
      before = once([1.0, 1.0, 1.0])
      _, *looped = tf.while_loop(
          lambda i, *_: i < times,
          lambda i, *values: (i + 1, *once(values)), (0, *before))
      chosen = tf.cond(branch, lambda: once(looped),
                       lambda: once([2.0 * value for value in looped]))
      return once(chosen)

    for branch, expected in ((True, 3.0**5), (False, 2 * 3.0**5)):
      results = step(tf.constant(2), tf.constant(branch))
      self.assertEqual([r.numpy() for r in results], [expected] * 3)

  def test_in_several_threads(self):
    # Apart: when one collective fails, every later one in the process does.
    done = python_process.run_script("""
        from concurrent import futures
        from tests.algorithms import algorithm_tensorflow_test as test

        def work(number):
          arrays = [number + array for array in test.numbers(3, [4], "float32")]
          for _ in range(20):
            for result in test.all_reduce(arrays, "collective"):
              assert (result.numpy() == test.total(arrays)).all()
          return number

        with futures.ThreadPoolExecutor(4) as pool:
          print(list(pool.map(work, range(4))))
    """)
    self.assertEqual(done.stdout, "[0, 1, 2, 3]\n", done.stderr[-2000:])

  @parameterized.parameters("auto", "ring", "nccl")
  def test_options(self, implementation):
    # MirroredStrategy may ask for NCCL though the devices are CPUs.
    options = tf.distribute.experimental.CommunicationOptions(
        timeout_seconds=77.0,
        implementation=tf.distribute.experimental.CommunicationImplementation(
            implementation.upper()))
    arrays = numbers(3, [4], "float32")
    step = tf.function(
        lambda *values: tf_cdops.all_reduce(on_devices(values), "collective",
                                            options=options),
        autograph=False)
    self.assert_sums(step(*arrays), arrays)
    ops = [op for op in step.get_concrete_function(*arrays).graph
           .get_operations() if op.type == "CollectiveReduceV2"]
    hint = "auto" if implementation == "nccl" else implementation
    self.assertEqual(
        [(op.get_attr("communication_hint").decode(),
          op.get_attr("timeout_seconds")) for op in ops], [(hint, 0.0)] * 3)


def bytes_between_devices(graph: tf.Graph, sources: Sequence[tf.Tensor]
                          ) -> dict[tuple[str, str], int]:
  """Counts what edges carry, each tensor to each device once.

  Args:
    graph: whose edges.
    sources: what counts is what is computed from these; constants don't.

  Returns:
    (from, to) -> bytes.
  """
  place = {tensor.name: tensor.device for tensor in sources}
  crossing = {}
  for op in graph.get_operations():  # An op comes after its inputs.
    inputs = [tensor for tensor in op.inputs if tensor.name in place]
    # What keeps Grappler from a sum is elsewhere in name only: between CPUs of
    # one process.
    device = (place[inputs[0].name] if inputs and op.type == "EnsureShape"
              else op.device)
    if inputs:
      place.update((tensor.name, device) for tensor in op.outputs)
    # Only what a function returns is on no device.
    crossing.update({(tensor.name, device): tensor for tensor in inputs
                     if device and place[tensor.name] != device})
  links = collections.Counter()
  for (name, target), tensor in crossing.items():
    links[place[name], target] += (
        tensor.shape.num_elements() * tensor.dtype.size)
  return dict(links)


def traced(name: str, topology: tf_cdops.Topology, shape: Sequence[int],
           shards: int) -> tuple[tf.Graph, list[tf.Tensor]]:
  """Returns an all-reduce's graph, and the tensors it starts from."""
  sources = []

  def step(*values):
    sources.extend(on_devices(values))
    return tf_cdops.all_reduce(sources, (name, shards), topology=topology)

  signature = [tf.TensorSpec(shape, tf.float64)] * len(topology.devices)
  return tf.function(step, autograph=False).get_concrete_function(
      *signature).graph, sources


class GraphAgreesWithTraceTest(AlgorithmTestCase):

  @parameterized.parameters(*ON_FABRIC)
  def test_bytes_between_devices(self, name):
    itemsize = 8
    for count, workers, shape, shards in (
        (1, 1, (7,), 2), (4, 1, (10, 10), 1), (5, 1, (7,), 2), (6, 1, (1,), 1),
        (2, 2, (7,), 1), (4, 2, (10, 10), 5), (4, 2, (1,), 3), (8, 2, (99,), 1),
        (8, 4, (7,), 3), (7, 3, (10, 10), 2)):
      topology = topology_of(count, workers)
      graph, sources = traced(name, topology, shape, shards)
      trace = proof.prove(registry.lookup(name, shards),
                          topology, math.prod(shape))
      self.assertEqual(
          bytes_between_devices(graph, sources),
          {link: itemsize * elements
           for link, elements in trace.links().items()},
          f"{count} devices, {workers} workers, {shape}, {shards} shards")

  @parameterized.product(
      name=("ps/ps", "xring", "rechd", "ps", "pscpu/pscpu", "pscpu/xring",
            "xring/rechd"), shards=(1, 2))
  def test_bytes_between_workers_are_those_of_explain(self, name, shards):
    for count, workers in ((4, 2), (3, 3), (8, 2), (7, 3)):
      topology = topology_of(count, workers)
      graph, sources = traced(name, topology, (10, 10), shards)
      worker_of = {topology.devices[rank]: number
                   for number, ranks in enumerate(topology.workers)
                   for rank in ranks}
      counted = sum(
          num_bytes for (source, target), num_bytes
          in bytes_between_devices(graph, sources).items()
          if worker_of[source] != worker_of[target])
      explained = tf_cdops.explain(
          [(name, shards)], topology, [((10, 10), "float64")])
      self.assertEqual(counted, explained.total.across, topology)
      self.assertGreater(counted, 0)

  @parameterized.parameters(
      (["/device:CPU:0", "/device:CPU:1"], 0),
      (["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"], 1),
      (["/device:GPU:0", "/device:GPU:1", "/device:GPU:2"], 0),
      ([f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(3)], 0))
  def test_only_sums_on_cpus_are_kept_from_rewriting(self, names, count):
    fabric = tensorflow_fabric.TensorFlowFabric()
    with tf.Graph().as_default() as graph:
      tensors = []
      for name in names:
        with tf.device(name):
          tensors.append(tf.ones([7]))
      total = fabric.add(fabric.place(tensors, names), names[0]).tensor.op
    self.assertEqual((total.type, total.device), ("AddN", names[0]))
    kept = [op for op in graph.get_operations() if op.type == "EnsureShape"]
    self.assertLen(kept, count)
    for op in kept:
      self.assertEqual(op.inputs[0].device, names[0])
      self.assertNotIn(names[0], [term.device for term in total.inputs])

  def test_counts_each_tensor_once_for_each_device(self):
    first, second, third = virtual_devices.names(3)
    with tf.Graph().as_default() as graph:
      with tf.device(first):
        source = tf.ones([5])
        other = tf.ones([7])
      with tf.device(second):
        copy = tf.identity(source)
        _ = source + 1.0, tf.split(copy, [2, 3]), other * 2.0
      with tf.device(third):
        _ = source + copy
    self.assertEqual(bytes_between_devices(graph, [source]),
                     {(first, second): 20, (first, third): 20,
                      (second, third): 20})


if __name__ == "__main__":
  absltest.main()
