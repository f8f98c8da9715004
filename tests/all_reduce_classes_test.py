"""Tests of AllReduceCrossDeviceOps, NcclAllReduce and MultiWorkerAllReduce."""

import contextlib
import copy
import functools
import itertools
import json
import logging
import math
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import cross_device_ops_contract as contract
from tests import python_process
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops import _tf_compat
from tf_cdops import execution
from tf_cdops.algorithms import registry

SUM, MEAN = test_util.SUM, test_util.MEAN
REPLICAS = test_util.GRAPH_DEVICES
DEVICES = virtual_devices.names(REPLICAS)
# One machine's devices as two workers, and as three.
PAIRED = tf_cdops.Topology.from_devices(DEVICES, [DEVICES[:2], DEVICES[2:]])
UNEVEN = tf_cdops.Topology.from_devices(
    DEVICES, [DEVICES[:1], DEVICES[1:3], DEVICES[3:]])

ALONE = tuple(algorithm.name for algorithm
              in tf_cdops.all_reduce_algorithms()
              if not algorithm.device_types)
PAIRS = ("pscpu/pscpu#2", "ps/xring#3", "xring/rechd", "rechd/collective",
         "hierarchical_copy/ps#2", "collective/xring")
BY_SIZE = ("ps:16:xring#3:24:rechd", "collective#2:8:hierarchical_copy#7",
           "auto")
SPECS = ALONE + PAIRS + BY_SIZE
PACKINGS = (
    {"num_packs": 0}, {"num_packs": 1}, {"num_packs": 2}, {"num_packs": 5},
    {"num_packs": 0, "agg_small_grads_max_bytes": 32,
     "agg_small_grads_max_group": 2})
CLASSES = (tf_cdops.AllReduceCrossDeviceOps, tf_cdops.NcclAllReduce,
           tf_cdops.MultiWorkerAllReduce)


def make(spec: Any, **kwargs: Any) -> tf.distribute.CrossDeviceOps:
  """Returns the class that fits: pairs need workers, and so a topology."""
  if spec in PAIRS:
    kwargs.setdefault("topology", PAIRED)
  if spec in ALONE and not kwargs.keys() - PACKINGS[-1].keys():
    return tf_cdops.AllReduceCrossDeviceOps(spec, **kwargs)
  return tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, **kwargs)


def each(value: Callable[[int], Any], replicas: int = REPLICAS) -> Any:
  """Returns a PerReplica of value(1), value(2), …"""
  return virtual_devices.per_replica(
      [value(r) for r in range(1, replicas + 1)])


def vectors(lengths: list[int], replicas: int = REPLICAS,
            dtype: Any = tf.float32) -> list[Any]:
  """Returns PerReplicas of those lengths; every element differs."""
  return [each(lambda r, n=n: tf.cast(tf.range(n) + 100 * r, dtype), replicas)
          for n in lengths]


def of_unknown_shape(tensor: Any, shape: Any) -> Any:
  """Hides a tensor's static shape, but for `shape`; in eager there's no way."""
  return tf.compat.v1.placeholder_with_default(tensor, shape)


def mixed_batch() -> list[Any]:
  """Returns a bit of everything; every sum is exact."""
  grid = tf.reshape(tf.range(6.0), [2, 3])
  slices = test_util.per_replica_slices(
      *[(np.full([n, 2], n + 1), list(range(n)), [4, 2]) for n in (1, 3, 0, 2)])
  return [
      each(lambda r: grid + 10.0 * r),
      each(lambda r: tf.range(5, dtype=tf.float64) * r),
      each(lambda r: tf.complex([1.0 * r, 2.0], [3.0, 4.0 * r])),
      slices,
      each(lambda r: tf.constant(1.0 * r)),
      each(lambda r: tf.constant(3 * r, tf.float64)),
      each(lambda r: tf.zeros([0, 3])),
      each(lambda r: of_unknown_shape(grid * r, None)),
      each(lambda r: of_unknown_shape(grid - r, [None, 3])),
      each(lambda r: tf.range(7, dtype=tf.float32) * r),
  ]


def batch_reduce(ops: Any, reduce_op: Any, values: list[Any],
                 options: Any = None) -> list[Any]:
  return ops.batch_reduce(reduce_op, [(v, v) for v in values], options)


def arrays(results: list[Any]) -> list[list[Any]]:
  """Returns what each device got, for each result."""
  return [[part.numpy().tolist() for part in test_util.local_results(result)]
          for result in results]


def sums(values: list[Any]) -> list[list[Any]]:
  """Returns what an all-reduce of `values` must give on each device."""
  return [[sum(v.numpy() for v in value.values).tolist()] * len(value.values)
          for value in values]


def traced(emit: Callable[[], Any]) -> list[tf.Operation]:
  """Returns the ops that `emit` puts into a tf.function's graph."""
  def function() -> None:
    emit()
  return tf.function(function).get_concrete_function().graph.get_operations()


def kind(ops: list[tf.Operation], op_type: str) -> list[tf.Operation]:
  return [op for op in ops if op.type == op_type]


def strategy_of(ops: Any, replicas: int = REPLICAS) -> tf.distribute.Strategy:
  return tf.distribute.MirroredStrategy(
      virtual_devices.names(replicas), cross_device_ops=ops)


@contextlib.contextmanager
def no_logs(test: absltest.TestCase) -> Iterator[None]:
  """Asserts that neither we nor TensorFlow warn of anything."""
  with test.assertNoLogs("absl", logging.WARNING), test.assertNoLogs(
      "tensorflow", logging.WARNING):
    yield


class AllReduceCrossDeviceOpsContractTest(contract.Contract):

  def make(self):
    return tf_cdops.AllReduceCrossDeviceOps("xring")


class NcclAllReduceContractTest(contract.Contract):

  def make(self):
    return tf_cdops.NcclAllReduce()


class MultiWorkerAllReduceContractTest(contract.Contract):

  def make(self):
    return tf_cdops.MultiWorkerAllReduce()


def rotated(by: int) -> list[tuple[Any, ...]]:
  """Returns every spec with one of the packings and one of the ops."""
  return [(spec, PACKINGS[i % len(PACKINGS)], (SUM, MEAN)[i % 2])
          for i, spec in enumerate(SPECS, start=by)]


@functools.cache  # One reference serves every spec.
def tensorflows_results(mode: str, reduce_op: Any) -> list[test_util.Result]:
  return test_util.run(mode, lambda: batch_reduce(
      tf.distribute.ReductionToOneDevice(), reduce_op, mixed_batch()))


class MixedBatchTest(parameterized.TestCase):
  """One batch_reduce of every kind of value, against TensorFlow's own."""

  def assert_as_tensorflow(self, mode: str, ops: Any, reduce_op: Any) -> None:
    ours = test_util.run(
        mode, lambda: batch_reduce(ops, reduce_op, mixed_batch()))
    for i, (mine, other) in enumerate(
        zip(ours, tensorflows_results(mode, reduce_op), strict=True)):
      self.assertEqual(mine, other, f"value {i}")

  @parameterized.product(spec=SPECS, packing=PACKINGS)
  def test_eager(self, spec, packing):
    for reduce_op in (SUM, MEAN):
      self.assert_as_tensorflow("eager", make(spec, **packing), reduce_op)

  @parameterized.parameters(*rotated(0))
  def test_function(self, spec, packing, reduce_op):
    self.assert_as_tensorflow("function", make(spec, **packing), reduce_op)

  @parameterized.parameters(*rotated(3))
  def test_graph_with_session(self, spec, packing, reduce_op):
    self.assert_as_tensorflow("graph", make(spec, **packing), reduce_op)

  @parameterized.parameters(*rotated(0))
  def test_reduce_agrees(self, spec, packing, reduce_op):
    ops, values = make(spec, **packing), mixed_batch()
    self.assertEqual(
        test_util.run("eager", lambda: [
            ops.reduce(reduce_op, v, v) for v in values]),
        test_util.run("eager", lambda: batch_reduce(ops, reduce_op, values)))

  def test_strategys_variables(self):
    strategy = strategy_of(tf_cdops.MultiWorkerAllReduce())
    with strategy.scope():
      variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]
    results = strategy.extended.batch_reduce_to(
        SUM, [(v, v) for v in variables])
    self.assertEqual(arrays(results), [[[4.0, 8.0]] * 4, [12.0] * 4])


class NotAnAllReduceTest(parameterized.TestCase):

  @parameterized.product(kind_of=CLASSES, where=(
      "one device", "one of several", "other devices", "another order",
      "fewer devices", "the same device twice"))
  def test_is_done_on_one_device_quietly(self, kind_of, where):
    # Its default, nccl, would raise here if it were asked to all-reduce.
    ops = kind_of()
    values = vectors([3, 5])
    first, *rest = values[0].values
    destinations = {
        "one device": "/cpu:2",
        "one of several": values[0].values[1],
        "other devices": _tf_compat.PerReplica(
            each(float, 8).values[REPLICAS:]),
        "another order": _tf_compat.PerReplica((*rest, first)),
        "fewer devices": _tf_compat.PerReplica((first, rest[0])),
        "the same device twice": values[0],
    }[where]
    if where == "the same device twice":
      values = [_tf_compat.PerReplica((first, first)),
                _tf_compat.PerReplica((rest[0], rest[0]))]
    pairs = [(value, destinations) for value in values]
    with no_logs(self):
      ours = test_util.run("eager", lambda: ops.batch_reduce(MEAN, pairs))
    self.assertEqual(ours, test_util.run(
        "eager", lambda: tf.distribute.ReductionToOneDevice().batch_reduce(
            MEAN, pairs)))

  def test_in_one_batch_with_all_reduces(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="xring", num_packs=1)
    (a, b, c), there = vectors([2, 3, 4]), "/cpu:1"
    results = ops.batch_reduce(SUM, [(a, a), (b, there), (c, c)])
    self.assertEqual(
        [r.arrays for r in test_util.run("eager", lambda: results)],
        [sums([a])[0], sums([b])[0][:1], sums([c])[0]])

  def test_batches_on_different_devices(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="rechd", num_packs=1)
    values = [*vectors([2], 2), *vectors([3], 3), *vectors([4], 2)]
    results = batch_reduce(ops, SUM, values)
    self.assertEqual(arrays(results), sums(values))


class WithoutDeviceTest(parameterized.TestCase):
  """A distributed batch, passed into a tf.function, has no devices."""

  @parameterized.parameters(
      lambda: tf_cdops.NcclAllReduce(),
      lambda: tf_cdops.AllReduceCrossDeviceOps("rechd"),
      lambda: tf_cdops.MultiWorkerAllReduce(),
      lambda: make("xring#3", num_packs=2),
      lambda: make("collective", num_packs=1),
      lambda: make("ps:8:hierarchical_copy", num_packs=5),
      lambda: make("auto"),
      lambda: make("ps/xring#3"))
  def test_batch_of_a_dataset(self, build):
    strategy = strategy_of(build())
    count = 2 * REPLICAS
    dataset = tf.data.Dataset.from_tensor_slices({
        "matrix": np.arange(3.0 * count, dtype="f").reshape([count, 3]),
        "vector": np.arange(count, dtype="d"),
        "empty": np.zeros([count, 0], "f")})
    dataset = dataset.batch(count, drop_remainder=True)
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
    devices = []
    @tf.function
    def step(batch: Any) -> Any:
      values = [batch[name] for name in ("matrix", "vector", "empty")]
      self.assertEqual({v.device for value in values for v in value.values},
                       {""})
      results = strategy.extended.batch_reduce_to(
          SUM, [(value, value) for value in values])
      devices.extend([v.device for v in r.values] for r in results)
      return [r.values for r in results]
    with strategy.scope():
      matrix, vector, empty = step(batch)
    rows = np.arange(3.0 * count).reshape([REPLICAS, 2, 3]).sum(0).tolist()
    self.assertEqual([v.numpy().tolist() for v in matrix], [rows] * REPLICAS)
    self.assertEqual([v.numpy().tolist() for v in vector],
                     [[12.0, 16.0]] * REPLICAS)
    self.assertEqual([v.shape for v in empty], [(2, 0)] * REPLICAS)
    self.assertEqual(devices, [DEVICES] * 3)

  def test_slices_passed_into_a_function(self):
    ops = tf_cdops.MultiWorkerAllReduce()
    strategy = strategy_of(ops, 2)
    value = test_util.per_replica_slices(
        ([[1.0]], [2], [3, 1]), ([[2.0], [3.0]], [0, 2], [3, 1]))
    @tf.function
    def step(value: Any) -> Any:
      (result,) = strategy.extended.batch_reduce_to(SUM, [(value, value)])
      return [tf.convert_to_tensor(part) for part in result.values]
    with strategy.scope():
      self.assertEqual([part.numpy().tolist() for part in step(value)],
                       [[[2.0], [0.0], [4.0]]] * 2)


class DeclaredDevicesTest(parameterized.TestCase):
  """Values with no device, and a topology that says where they are."""

  def trace(self, ops: Any, pairs: Callable[[Any], Any]) -> Any:
    """Traces a batch_reduce of arguments, which have no device."""
    values = [v.values for v in vectors([2, 5])]
    @tf.function(autograph=False)
    def step(values: Any) -> Any:
      self.assertEqual({v.device for value in values for v in value}, {""})
      given = [_tf_compat.PerReplica(tuple(value)) for value in values]
      results = ops.batch_reduce(SUM, [pairs(value) for value in given])
      return [test_util.local_results(result) for result in results]
    concrete = step.get_concrete_function(values)
    return concrete.graph.get_operations(), step(values)

  def assert_sums(self, results: Any) -> None:
    self.assertEqual([[part.numpy().tolist() for part in parts]
                      for parts in results], sums(vectors([2, 5])))

  @parameterized.product(
      topology=(PAIRED, UNEVEN), spec=(*PAIRS, "xring#2", "auto"),
      destinations=("itself", "others with no device", "the devices"))
  def test_are_reduced_as_if_they_were_there(self, topology, spec,
                                             destinations):
    ops = make(spec, topology=topology, num_packs=1)
    pairs = {
        "itself": lambda v: (v, v),
        "others with no device": lambda v: (
            v, _tf_compat.PerReplica(tuple(2.0 * part for part in v.values))),
        "the devices": lambda v: (v, each(float))}[destinations]
    emitted, results = self.trace(ops, pairs)
    self.assert_sums(results)
    values = vectors([2, 5])  # Eager tensors, which do have devices.
    known = traced(lambda: batch_reduce(ops, SUM, values))
    for op_type in ("AddN", "AddV2", "ConcatV2", "CollectiveReduceV2"):
      with self.subTest(op_type):
        self.assertEqual(
            sorted(op.device for op in kind(emitted, op_type)),
            sorted(op.device for op in kind(known, op_type)))

  def test_each_worker_sums_for_itself(self):
    ops = tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="pscpu/pscpu", topology=PAIRED)
    emitted, results = self.trace(ops, lambda v: (v, v))
    self.assert_sums(results)
    # Of each of two values: on both workers, and of the workers on one.
    where = sorted(DEVICES.index(op.device) for op in kind(emitted, "AddN"))
    self.assertLen(where, 6)
    self.assertEqual(set(where), {0, 2})

  def test_of_another_number_are_not_meant(self):
    three = tf_cdops.Topology.from_devices(DEVICES[:3])
    ops = tf_cdops.MultiWorkerAllReduce(topology=three)
    emitted, results = self.trace(ops, lambda v: (v, v))
    self.assert_sums(results)
    self.assertEqual({op.device for op in kind(emitted, "AddN")}, {""})

  def test_one_device_as_destination_is_no_all_reduce(self):
    ops = tf_cdops.MultiWorkerAllReduce(topology=PAIRED)
    emitted, results = self.trace(ops, lambda v: (v, DEVICES[3]))
    self.assertEqual([len(parts) for parts in results], [1, 1])
    self.assertEqual([op.device for op in kind(emitted, "AddN")],
                     [DEVICES[3]] * 2)

  def test_slices(self):
    ops = tf_cdops.MultiWorkerAllReduce(
        topology=tf_cdops.Topology.from_devices(DEVICES[:2]))
    value = test_util.per_replica_slices(
        ([[1.0]], [2], [3, 1]), ([[2.0], [3.0]], [0, 2], [3, 1]))
    devices = []
    @tf.function
    def step(value: Any) -> Any:
      result = ops.reduce(SUM, value, value)
      devices.extend(part.values.device for part in result.values)
      return [tf.convert_to_tensor(part) for part in result.values]
    self.assertEqual([part.numpy().tolist() for part in step(value)],
                     [[[2.0], [0.0], [4.0]]] * 2)
    self.assertEqual(devices, DEVICES[:2])

  def test_that_are_not_here(self):
    names = [*DEVICES[:3], "/cpu:99"]
    ops = tf_cdops.MultiWorkerAllReduce(
        topology=tf_cdops.Topology.from_devices(names))
    with self.assertRaisesRegex(
        ValueError, r"`topology` \('/device:CPU:99'\) must be a device of this "
        "program; choose one of"):
      self.trace(ops, lambda v: (v, v))

  def test_a_strategys_devices_come_first(self):
    backwards = tf_cdops.Topology.from_devices(DEVICES[::-1])
    strategy = strategy_of(tf_cdops.MultiWorkerAllReduce(topology=backwards))
    with strategy.scope(), self.assertRaisesRegex(
        ValueError, r"`topology` has the devices .*CPU:3', .*they must be the "
        "same, in order"):
      self.trace(strategy.extended._cross_device_ops, lambda v: (v, v))


class NcclTest(parameterized.TestCase):

  def test_falls_back_with_one_warning_that_says_why(self):
    ops = tf_cdops.NcclAllReduce(num_packs=2)
    values = vectors([3, 1])
    with self.assertLogs("absl", logging.WARNING) as logs:
      for _ in range(3):
        self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))
        self.assertEqual(arrays([ops.reduce(SUM, values[0], values[0])]),
                         sums(values[:1]))
      traced(lambda: batch_reduce(ops, SUM, vectors([3, 1], 2)))
    self.assertLen(logs.records, 1)
    self.assertRegex(
        logs.records[0].getMessage(),
        r"^NcclAllReduce reduces on one device instead: nccl needs GPU devices "
        r"only; use .*'xring'")

  def test_one_replica_is_no_reason_to_warn(self):
    with no_logs(self):
      value = each(float, 1)
      self.assertEqual(
          float(tf_cdops.NcclAllReduce().reduce(SUM, value, value)), 1.0)

  @parameterized.parameters(
      lambda: tf_cdops.AllReduceCrossDeviceOps(),
      lambda: tf_cdops.AllReduceCrossDeviceOps("xring:8:nccl/ps"),
      lambda: tf_cdops.MultiWorkerAllReduce(all_reduce_spec="psgpu"))
  def test_other_classes_raise_where_gpus_are_needed(self, build):
    ops, value = build(), vectors([3])[0]
    need = (r"`algorithm` \('\S+'\) can't run on \S*CPU:0, .* and 1 more: "
            r"\w+ needs GPU devices only; use 'ps', 'xring' or 'rechd'")
    with self.assertRaisesRegex(ValueError, need):
      ops.reduce(SUM, value, value)
    strategy = strategy_of(ops)
    @tf.function
    def step() -> Any:
      return strategy.run(
          lambda: tf.distribute.get_replica_context().all_reduce(
              SUM, tf.ones([3])))
    with self.assertRaisesRegex(ValueError, need):
      step()

  def test_one_replica_is_no_reason_to_raise(self):
    value = each(float, 1)
    ops = tf_cdops.AllReduceCrossDeviceOps()
    self.assertEqual(float(ops.reduce(SUM, value, value)), 1.0)


class PackingTest(parameterized.TestCase):

  def packs(self, values: Callable[[], list[Any]], options: Any = None,
            **kwargs: Any) -> int:
    """Counts packs: "ps" emits one sum, on one device, for each."""
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", **kwargs)
    emitted = traced(lambda: batch_reduce(ops, SUM, values(), options))
    return len(kind(emitted, "AddN"))

  @parameterized.parameters(
      (0, 64, 8), (1, 0, 1), (1, 64, 2), (1, 48, 3), (1, 16, 8), (1, 1, 8),
      (3, 0, 3), (3, 64, 3), (3, 32, 4), (9, 0, 8))
  def test_options_cap_packs(self, num_packs, cap, expected):
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=cap)
    self.assertEqual(self.packs(lambda: vectors([4] * 8), options,
                                num_packs=num_packs), expected)

  def test_options_of_a_strategys_call_cap_packs(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", num_packs=1)
    strategy = strategy_of(ops)
    def emit(cap: int) -> Any:
      values = vectors([4] * 8)
      return strategy.extended.batch_reduce_to(
          SUM, [(v, v) for v in values],
          tf.distribute.experimental.CommunicationOptions(bytes_per_pack=cap))
    self.assertLen(kind(traced(lambda: emit(0)), "AddN"), 1)
    self.assertLen(kind(traced(lambda: emit(64)), "AddN"), 2)

  @parameterized.parameters(
      ([4] * 8, "Pack", "Unpack"), ([4] * 7 + [5], "ConcatV2", "SplitV"))
  def test_a_pack_is_joined_once_on_each_device(self, lengths, join, part):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", num_packs=1)
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors(lengths)))
    for kind_of_op in (join, part):
      self.assertCountEqual([op.device for op in kind(emitted, kind_of_op)],
                            DEVICES)
    self.assertEmpty(kind(emitted, "Reshape"))


class FileTest(parameterized.TestCase):
  """A file's spec is run as it was measured: packed."""

  def path(self, **keys: Any) -> str:
    content = json.dumps({"all_reduce_spec": "ps"} | keys)
    return "@" + self.create_tempfile("spec.json", content).full_path

  def packs(self, ops: Any) -> int:
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors([4] * 8)))
    return len(kind(emitted, "AddN"))

  @parameterized.parameters(
      ({}, 2), ({"num_packs": 1}, 1), ({"num_packs": 3}, 3),
      ({"agg_small_grads_max_bytes": 4}, 8),
      ({"agg_small_grads_max_group": 2}, 4),
      ({"agg_small_grads_max_bytes": 16, "agg_small_grads_max_group": 8}, 1))
  def test_multi_worker(self, given, expected):
    path = self.path(agg_small_grads_max_bytes=16, agg_small_grads_max_group=4)
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=path, **given)
    self.assertEqual(self.packs(ops), expected)

  @parameterized.parameters(
      ({}, 2), ({"num_packs": 0}, 8), ({"num_packs": 3}, 3),
      ({"num_packs": 0, "agg_small_grads_max_bytes": 16,
        "agg_small_grads_max_group": 8}, 1))
  def test_all_reduce(self, given, expected):
    path = self.path(num_packs=2)
    self.assertEqual(
        self.packs(tf_cdops.AllReduceCrossDeviceOps(path, **given)), expected)

  @parameterized.parameters(
      ({}, 1, 8), ({"num_packs": 0}, 8, 8), ({"num_packs": 2}, 2, 2))
  def test_what_a_file_does_not_say(self, keys, all_reduce, multi_worker):
    path = self.path(**keys)
    self.assertEqual(self.packs(tf_cdops.AllReduceCrossDeviceOps(path)),
                     all_reduce)
    self.assertEqual(
        self.packs(tf_cdops.MultiWorkerAllReduce(all_reduce_spec=path)),
        multi_worker)

  def test_options_cap_packs(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=self.path(num_packs=1))
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=64)
    emitted = traced(
        lambda: batch_reduce(ops, SUM, vectors([4] * 8), options))
    self.assertLen(kind(emitted, "AddN"), 2)

  def test_function(self):
    results = tf_cdops.all_reduce(
        list(vectors([4])[0].values), self.path(num_packs=1))
    self.assertLen(results, REPLICAS)

  def test_settings_that_are_shown_are_those_of_the_file(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=self.path(num_packs=2))
    self.assertStartsWith(
        repr(ops), "MultiWorkerAllReduce(all_reduce_spec='ps', num_packs=2, ")

  def test_malformed(self):
    path = self.path(num_packs="two")
    for make_ops in (
        tf_cdops.AllReduceCrossDeviceOps,
        lambda spec: tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec)):
      with self.assertRaisesRegex(
          ValueError, rf"\('{path}'\): its 'num_packs' \('two'\) must be"):
        make_ops(path)


class EagerTest(parameterized.TestCase):

  @parameterized.parameters("ps", "xring#2", "collective", "auto")
  def test_repeated_batch_plans_nothing_anew(self, spec):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, num_packs=1)
    values = vectors([5, 3, 8])
    batch_reduce(ops, SUM, values)
    before = execution.checked_plan.cache_info()
    for _ in range(3):
      batch_reduce(ops, SUM, values)
    after = execution.checked_plan.cache_info()
    self.assertEqual((after.misses, after.hits),
                     (before.misses, before.hits + 3))
    self.assertIsNotNone(after.maxsize)

  @parameterized.product(spec=ALONE, replicas=(2, 3))
  def test_results_say_where_they_are(self, spec, replicas):
    values = vectors([5, 1], replicas)
    for result in batch_reduce(make(spec), SUM, values):
      self.assertEqual([part.device for part in result.values],
                       virtual_devices.names(replicas))
      self.assertEqual([part.backing_device for part in result.values],
                       virtual_devices.names(replicas))

  @parameterized.parameters("float16", "bfloat16", "float32", "float64",
                            "int32", "int64", "complex64", "complex128")
  def test_collective_sums(self, dtype):
    value = contract.numbers(3, dtype)
    result = make("collective").reduce(SUM, value, value)
    self.assertEqual({part.dtype.name for part in result.values}, {dtype})
    self.assertEqual(arrays([result]), [[[6, 12, 18]] * 3])

  def test_collective_says_what_it_cannot_sum(self):
    value = contract.numbers(3, "uint8")
    with self.assertRaisesRegex(
        ValueError, "collective can't sum uint8; it sums float16, .*: cast"):
      make("collective").reduce(SUM, value, value)

  def test_collective_is_quiet_about_many_shapes(self):
    """In a process of its own: TensorFlow warns of retracing but twice."""
    outcome = python_process.run_script("""
        from tests import virtual_devices
        import tensorflow as tf
        import tf_cdops

        values = [virtual_devices.per_replica([tf.ones([n])] * 2)
                  for n in range(1, 31)]
        results = tf_cdops.AllReduceCrossDeviceOps(
            "collective", num_packs=0).batch_reduce(
                tf.distribute.ReduceOp.SUM, [(v, v) for v in values])
        print(*(int(tf.reduce_sum(r.values[1])) for r in results))
        """)
    self.assertEqual(outcome.stdout.split(),
                     [str(2 * n) for n in range(1, 31)], outcome.stderr)
    self.assertNotIn("WARNING:tensorflow", outcome.stderr)


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


class CopyTest(parameterized.TestCase):

  @parameterized.parameters(
      (lambda: tf_cdops.AllReduceCrossDeviceOps(),
       "AllReduceCrossDeviceOps('nccl', num_packs=1, "
       "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
       "sparse='gather')"),
      (lambda: tf_cdops.AllReduceCrossDeviceOps(
          [("xring", 2, 65536), ("ps",)], 0, 512, 5, sparse="dense"),
       "AllReduceCrossDeviceOps('xring#2:64k:ps', num_packs=0, "
       "agg_small_grads_max_bytes=512, agg_small_grads_max_group=5, "
       "sparse='dense')"),
      (lambda: tf_cdops.NcclAllReduce(3),
       "NcclAllReduce(num_packs=3, sparse='gather')"),
      (lambda: tf_cdops.MultiWorkerAllReduce(),
       "MultiWorkerAllReduce(all_reduce_spec='pscpu/pscpu#2', num_packs=0, "
       "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
       "sparse='gather')"),
      (lambda: tf_cdops.MultiWorkerAllReduce(
          ["/cpu:0", "/cpu:1"], 0, tf_cdops.AllReduceSpecTuple("ps", 3, -1),
          2, sparse="deduplicate", reproducible=True, self_check=True),
       "MultiWorkerAllReduce(all_reduce_spec='ps#3', num_packs=2, "
       "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
       "sparse='deduplicate', worker_devices=('/cpu:0', '/cpu:1'), "
       "num_gpus_per_worker=0, reproducible=True, self_check=True)"),
      (lambda: tf_cdops.MultiWorkerAllReduce(
          all_reduce_spec="auto", reproducible=True, topology=PAIRED),
       "MultiWorkerAllReduce(all_reduce_spec='ps', num_packs=0, "
       "agg_small_grads_max_bytes=0, agg_small_grads_max_group=10, "
       f"sparse='gather', topology={PAIRED!r}, reproducible=True)"))
  def test_repr_deep_copy_and_pickle(self, build, text):
    original = build()
    self.assertEqual(repr(original), text)
    value = contract.numbers(2)
    for duplicate in (copy.deepcopy(original),
                      pickle.loads(pickle.dumps(original))):
      self.assertIs(type(duplicate), type(original))
      self.assertEqual(repr(duplicate), text)
      # To one device, so that nccl and PAIRED, which don't fit, are no matter.
      self.assertEqual(duplicate.reduce(SUM, value, "/cpu:3").numpy().tolist(),
                       [3.0, 6.0, 9.0])

  @parameterized.parameters(*SPECS)
  def test_copies_of_a_used_object_work(self, spec):
    original, values = make(spec), vectors([5, 2])
    batch_reduce(original, SUM, values)
    for duplicate in (copy.deepcopy(original),
                      pickle.loads(pickle.dumps(original))):
      self.assertEqual(arrays(batch_reduce(duplicate, SUM, values)),
                       sums(values))


class ThreadsTest(absltest.TestCase):

  def test_two_strategies_do_not_disturb_each_other(self):
    """In a process of its own: a collective that fails spoils later ones."""
    outcome = python_process.run_script("""
        import threading
        from tests import virtual_devices
        import tensorflow as tf
        import tf_cdops

        STEPS = 20

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


class ReproducibleTest(parameterized.TestCase):
  """With numbers whose sum depends, in its last bits, on the order."""

  LENGTHS = (5, 64, 1, 33, 2)
  COUNT = virtual_devices.COUNT

  def setUp(self):
    super().setUp()
    rng = np.random.default_rng(0)
    # By value, replica and element.
    self.numbers = [
        (rng.normal(size=[self.COUNT, n])
         * 10.0**rng.integers(-3, 4, [self.COUNT, n])).astype("float32")
        for n in self.LENGTHS]

  def bits(self, mode: str, destination: str | None = None,
           **kwargs: Any) -> list[Any]:
    """Returns the sums; all-reduced, unless a destination is given."""
    ops = tf_cdops.MultiWorkerAllReduce(**kwargs)
    def emit() -> list[Any]:
      # Not as constants, whose sums Grappler may do before the graph runs.
      values = [virtual_devices.per_replica([
          of_unknown_shape(replica, replica.shape) for replica in number])
                for number in self.numbers]
      return ops.batch_reduce(SUM, [(v, destination or v) for v in values])
    results = test_util.run(mode, emit)
    for result in results:
      self.assertEqual(result.arrays, result.arrays[:1] * len(result.arrays))
    return [result.arrays[0] for result in results]

  def in_replica_order(self) -> list[Any]:
    totals = []
    for number in self.numbers:
      total = number[0]
      for replica in number[1:]:
        total = total + replica
      totals.append(total.tolist())
    return totals

  @parameterized.product(
      spec=("ps", "pscpu#5", "ps:16:pscpu#2:64:ps#20", "auto"),
      packing=PACKINGS)
  def test_bits_do_not_depend_on_packing_shards_or_sizes(self, spec, packing):
    self.assertEqual(
        self.bits("eager", all_reduce_spec=spec, reproducible=True, **packing),
        self.in_replica_order())

  @parameterized.product(spec=("ps", "pscpu#3"), packing=PACKINGS[::2])
  def test_nor_on_the_mode(self, spec, packing):
    """In a graph Grappler sorts AddN's inputs by their names."""
    self.assertEqual(
        self.bits("function", all_reduce_spec=spec, reproducible=True,
                  **packing), self.in_replica_order())

  @parameterized.parameters("eager", "function")
  def test_nor_on_the_destination(self, mode):
    self.assertEqual(
        self.bits(mode, "/cpu:3", all_reduce_spec="ps", reproducible=True),
        self.in_replica_order())

  @parameterized.parameters("eager", "function")
  def test_what_cancels_is_plus_zero(self, mode):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps",
                                        reproducible=True)
    (result,) = test_util.run(mode, lambda: batch_reduce(
        ops, SUM, [virtual_devices.per_replica([1.0, -1.0, 0.0])]))
    self.assertEqual(str(result.arrays), "[0.0, 0.0, 0.0]")

  @parameterized.parameters("xring", "rechd", "hierarchical_copy")
  def test_bits_do_depend_on_them_otherwise(self, spec):
    """So the numbers of these tests can tell one order from another."""
    bits = self.bits("eager", all_reduce_spec=spec)
    self.assertNotEqual(bits, self.in_replica_order())
    for ours, in_order in zip(bits, self.in_replica_order(), strict=True):
      np.testing.assert_allclose(ours, in_order, rtol=1e-3, atol=1e-3)

  def test_packing_and_shards_change_bits_otherwise(self):
    self.assertLen({str(self.bits("eager", **kwargs)) for kwargs in (
        {"all_reduce_spec": "xring"}, {"all_reduce_spec": "xring#3"},
        {"all_reduce_spec": "xring", "num_packs": 1})}, 3)

  @parameterized.parameters("xring", "rechd", "collective", "ps:1k:xring",
                            "hierarchical_copy#2", "pscpu/pscpu", "ps/ps")
  def test_specs_that_cannot_are_refused(self, spec):
    with self.assertRaisesRegex(
        ValueError, r"`reproducible` \(True\) must have algorithms that sum in "
        r"the order of replicas, and '\S+' in `all_reduce_spec` doesn't; use "
        r"'ps'"):
      tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, reproducible=True)


class SelfCheckTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    # What this test registers must not stay for other tests.
    self.enter_context(mock.patch.dict(registry._algorithms))

    @tf_cdops.register_all_reduce(
        "drops_one", description="Forgets the last replica.")
    def drops_one(fabric: Any, values: Any, group: Any) -> Any:
      return [fabric.add(values[:-1], place) for place in group.places]

    @tf_cdops.register_all_reduce(
        "differs", description="Is right everywhere but on the last device.")
    def differs(fabric: Any, values: Any, group: Any) -> Any:
      right = [fabric.add(values, place) for place in group.places]
      return [*right[:-1], fabric.add([right[-1], values[0]],
                                      group.places[-1])]

  @parameterized.parameters(*SPECS)
  def test_right_algorithms_pass(self, spec):
    for reduce_op in (SUM, MEAN):
      ops = make(spec, self_check=True)
      self.assertEqual(
          test_util.run("eager", lambda ops=ops, op=reduce_op: batch_reduce(
              ops, op, mixed_batch())),
          tensorflows_results("eager", reduce_op))

  @parameterized.product(mode=("function", "graph"), spec=("xring", "auto"))
  def test_right_algorithms_pass_in_graphs(self, mode, spec):
    ops = make(spec, self_check=True)
    self.assertEqual(
        test_util.run(mode, lambda: batch_reduce(ops, MEAN, mixed_batch())),
        tensorflows_results(mode, MEAN))

  def assert_caught(self, spec: str, values: Callable[[], list[Any]],
                    message: str, mode: str = "eager",
                    reduce_op: Any = SUM, **kwargs: Any) -> None:
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, self_check=True,
                                        **kwargs)
    with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
      test_util.run(mode, lambda: batch_reduce(ops, reduce_op, values()))

  @parameterized.product(mode=test_util.MODES, num_packs=(0, 1))
  def test_catches_a_dropped_replica(self, mode, num_packs):
    # Only tensors 0 and 2 are large enough for the broken algorithm.
    self.assert_caught(
        "ps:8:drops_one", lambda: vectors([8, 2, 6]),
        # TensorFlow puts a backslash before a graph's apostrophes.
        r"tensor [02] on \S*CPU:\d, reduced by \\?'drops_one\\?', isn\\?'t the "
        "sum", mode, num_packs=num_packs)

  @parameterized.parameters(*test_util.MODES)
  def test_catches_one_wrong_device(self, mode):
    self.assert_caught(
        "differs", lambda: vectors([3]),
        r"tensor 0 on \S*CPU:3, reduced by \\?'differs\\?', isn\\?'t the sum",
        mode)

  def test_without_it_nothing_is_noticed(self):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="drops_one")
    self.assertEqual(arrays(batch_reduce(ops, SUM, vectors([1]))),
                     [[[100.0 + 200 + 300]] * 4])

  @parameterized.product(
      dtype=("float16", "bfloat16", "float32", "float64", "int8", "uint8",
             "int32", "int64", "complex64", "complex128"),
      reduce_op=(SUM, MEAN), replicas=(3, 8))
  def test_every_dtype(self, dtype, reduce_op, replicas):
    # Every replica has its share in the sum: dropping one is no rounding.
    values = lambda: [each(lambda r: tf.cast([1, 2, 3], dtype), replicas)]
    for spec in ("ps", "xring", "hierarchical_copy"):
      test_util.run("eager", lambda spec=spec: batch_reduce(
          tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, self_check=True),
          reduce_op, values()))
    self.assert_caught("drops_one", values, "isn't the sum",
                       reduce_op=reduce_op)

  @parameterized.parameters("float16", "bfloat16", "float32")
  def test_rounding_does_not_trip_it(self, dtype):
    rng = np.random.default_rng(1)
    values = [each(lambda r: tf.cast(rng.normal(size=500) * 10.0**(r % 4),
                                     dtype), 8)]
    for spec in ("xring", "rechd#3", "collective"):
      ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec,
                                          self_check=True)
      for reduce_op in (SUM, MEAN):
        (result,) = batch_reduce(ops, reduce_op, values)
        self.assertEqual(result.values[0].shape, [500])

  @parameterized.product(
      reduce_op=(SUM, MEAN), dtype=("float32", "bfloat16", "complex64"),
      spec=("xring", "rechd"))
  def test_inf_and_nan_do_not_trip_it(self, reduce_op, dtype, spec):
    inf, nan, big = math.inf, math.nan, 3e38
    rows = ([inf, nan, 1, inf, big, -big], [1, 2, 3, -inf, big, big],
            [nan, 0, 5, 1, -big, big])
    values = [virtual_devices.per_replica([tf.cast(r, dtype) for r in rows])]
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, self_check=True)
    (result,) = batch_reduce(ops, reduce_op, values)
    self.assertEqual(complex(result.values[0][2].numpy()),
                     9 if reduce_op == SUM else 3)

  @parameterized.product(mode=("eager", "function"), reduce_op=(SUM, MEAN),
                         dtype=("float16", "float32", "complex64"))
  def test_catches_a_number_where_there_is_none(self, mode, reduce_op, dtype):
    for odd in (math.inf, -math.inf, math.nan):
      # Only the replica that is forgotten has it.
      self.assert_caught(
          "drops_one", lambda odd=odd: [each(lambda r: tf.cast(
              [odd if r == REPLICAS else 1.0], dtype))],
          "tensor 0 on", mode, reduce_op)

  @parameterized.product(
      mode=test_util.MODES, sparse=("gather", "deduplicate", "dense"),
      dtype=("float16", "float32", "int32", "complex64"), reduce_op=(SUM, MEAN))
  def test_sparse_results(self, mode, sparse, dtype, reduce_op):
    def values() -> list[Any]:
      return [*vectors([2]), test_util.per_replica_slices(
          ([[1, 2], [3, 4], [5, 6]], [2, 0, 2], [4, 2]),
          ([[7, 8]], [3], [4, 2]), dtype=dtype)]
    ops = make("xring", self_check=True, sparse=sparse)
    test_util.run(mode, lambda: batch_reduce(ops, reduce_op, values()))
    if sparse == "dense":
      return
    right = execution.gather_slices
    broken = lambda values, names, op: right(values[:1], names, op)
    with mock.patch.object(execution, "gather_slices", broken), (
        self.assertRaisesRegex(
            tf.errors.InvalidArgumentError,
            r"tensor 1 on \S*CPU:\d, gathered, isn\\?'t the sum")):
      test_util.run(mode, lambda: batch_reduce(ops, reduce_op, values()))

  @parameterized.parameters(*test_util.MODES)
  def test_results_of_one_device(self, mode):
    ops = make("xring", self_check=True)
    to_one = lambda: ops.batch_reduce(SUM, [
        (value, virtual_devices.names(2)[1]) for value in vectors([3, 2])])
    test_util.run(mode, to_one)
    wrong = lambda device, values, _: execution.as_tensor(values[0], device)
    with mock.patch.object(execution, "sum_on", wrong), (
        self.assertRaisesRegex(
            tf.errors.InvalidArgumentError,
            r"tensor [01] on \S*CPU:1, summed on one device, isn\\?'t the")):
      test_util.run(mode, to_one)

  def test_sums_once_for_all_devices(self):
    emitted = {
        check: len(kind(traced(lambda check=check: batch_reduce(
            make("ps", self_check=check), SUM, vectors([3]))), "AddN"))
        for check in (False, True)}
    # The plain sum, that of sizes, and the number of odd terms.
    self.assertEqual(emitted[True] - emitted[False], 3)

  def test_inf_does_not_hide_a_fault_beside_it(self):
    self.assert_caught("drops_one",
                       lambda: [each(lambda r: [math.inf, 1.0 * r])],
                       "tensor 0 on")

  @parameterized.parameters(SUM, MEAN)
  def test_integers_that_overflow_do_not_trip_it(self, reduce_op):
    values = [each(lambda r: tf.constant([100, -100], tf.int8))]
    results = [batch_reduce(tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="xring", **kwargs), reduce_op, values)
               for kwargs in ({}, {"self_check": True})]
    self.assertEqual(arrays(results[0]), arrays(results[1]))


class WorkersTest(parameterized.TestCase):

  def summing_devices(self, ops: Any, replicas: int = REPLICAS) -> list[str]:
    """Returns where a batch of one is summed; checks the sum, too."""
    values = vectors([6], replicas)
    self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors([6], replicas)))
    return sorted(tf.DeviceSpec.from_string(op.device).device_index
                  for op in kind(emitted, "AddN"))

  @parameterized.parameters(
      (None, [0]), (PAIRED, [0, 0, 2]), (UNEVEN, [0, 1]))
  def test_topology_declares_virtual_workers(self, topology, where):
    """One sum for each worker with several devices, and one across."""
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="pscpu/pscpu",
                                        topology=topology)
    self.assertEqual(self.summing_devices(ops), where)

  def test_topology_may_have_short_names(self):
    short = [f"/cpu:{i}" for i in range(REPLICAS)]
    ops = tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="pscpu/pscpu",
        topology=tf_cdops.Topology.from_devices(short, [short[:2], short[2:]]))
    self.assertEqual(self.summing_devices(ops), [0, 0, 2])

  @parameterized.product(topology=(PAIRED, UNEVEN), spec=PAIRS)
  def test_pairs_on_virtual_workers(self, topology, spec):
    values = vectors([1, 7, 16])
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec,
                                        topology=topology, num_packs=2)
    self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))

  @parameterized.parameters(3, 5)
  def test_topology_of_other_devices(self, replicas):
    value = vectors([2], replicas)[0]
    ops = tf_cdops.MultiWorkerAllReduce(topology=PAIRED)
    with self.assertRaisesRegex(
        ValueError, r"`topology` has the devices \[\S*CPU:0.*CPU:3'\], and the "
        rf"values are on \[.*CPU:{replicas - 1}'\]; they must be the same"):
      ops.reduce(SUM, value, value)

  @parameterized.parameters(
      (None, [0]),
      (["/job:localhost"], [0]),
      (["/job:localhost/replica:0/task:0"], [0]),
      (["/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"], [0]))
  def test_worker_devices_that_match(self, worker_devices, where):
    ops = tf_cdops.MultiWorkerAllReduce(
        worker_devices, 0, all_reduce_spec="pscpu/pscpu")
    self.assertEqual(self.summing_devices(ops), where)

  @parameterized.parameters(
      ["/job:worker/task:0"], ["/job:localhost", "/job:worker/task:1"],
      ["/cpu:0"], ["/cpu:0", "/cpu:1", "/cpu:2"], ["/task:1"],
      ["/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3", "/cpu:4"],
      ["/job:localhost", "/cpu:3"])
  def test_worker_devices_that_do_not_match(self, *worker_devices):
    ops = tf_cdops.MultiWorkerAllReduce(list(worker_devices))
    value = vectors([2])[0]
    with self.assertRaisesRegex(
        ValueError, r"`worker_devices` \(\['/.*\]\) must be the workers of the "
        r"values' devices, which are \['/job:localhost/.*CPU:3'\]"):
      ops.reduce(SUM, value, value)

  def test_another_number_of_gpus_is_told_once(self):
    ops = tf_cdops.MultiWorkerAllReduce(num_gpus_per_worker=2)
    values = vectors([2, 3])
    with self.assertLogs("absl", logging.WARNING) as logs:
      for _ in range(3):
        self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))
    self.assertLen(logs.records, 1)
    self.assertRegex(
        logs.records[0].getMessage(),
        r"^MultiWorkerAllReduce goes on with the GPUs it found, of each worker "
        r"\[0\], which isn't `num_gpus_per_worker` \(2\): the devices are "
        r"\['/job:localhost/.*CPU:3'\]\.$")

  def test_each_object_tells_of_each_finding(self):
    pairs = [(ops, value) for ops in (
        tf_cdops.MultiWorkerAllReduce(num_gpus_per_worker=1),
        tf_cdops.MultiWorkerAllReduce(num_gpus_per_worker=1))
             for value in vectors([1], 2) + vectors([1], 3)]
    with self.assertLogs("absl", logging.WARNING) as logs:
      for ops, value in pairs * 2:
        ops.reduce(SUM, value, value)
    self.assertLen(logs.records, 4)

  @parameterized.parameters(
      (["CPU:0"], r"worker \[0, 0\], which .*_worker` \(2\)"),
      (["GPU:0"], r"worker \[1, 1\], which .*_worker` \(2\)"),
      (["GPU:0", "GPU:1"], None))
  def test_gpus_of_the_workers_that_tensorflows_tests_name(self, kinds, found):
    workers = [f"/job:worker/replica:0/task:{i}" for i in range(2)]
    ops = tf_cdops.MultiWorkerAllReduce(
        workers, 2, ("pscpu/pscpu", 2, -1), 0, 0, 0)
    with tf.Graph().as_default():
      parts = []
      for worker, name in itertools.product(workers, kinds):
        with tf.device(f"{worker}/device:{name}"):
          parts.append(tf.zeros([2]))
      value = _tf_compat.PerReplica(tuple(parts))
      with (self.assertLogs("absl", logging.WARNING) if found
            else no_logs(self)) as logs:
        result = ops.reduce(SUM, value, value)
    self.assertEqual([part.device for part in result.values],
                     [part.device for part in parts])
    if found:
      self.assertRegex(logs.records[0].getMessage(), found)


class HistoricBugsTest(parameterized.TestCase):
  """What was wrong in TensorFlow's classes, one test each."""

  @parameterized.parameters("xring:16:ps", "ps:24:rechd#2", "ps:8:xring:24:ps")
  def test_order_is_kept_whatever_the_sizes(self, spec):
    values = vectors([8, 2, 6])
    for packing in PACKINGS:
      ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec, **packing)
      self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))

  @parameterized.parameters(
      ("float32", 4, False), ("float32", 5, True), ("float64", 2, False),
      ("float64", 3, True), ("complex64", 2, False), ("float16", 8, False))
  def test_limits_are_bytes(self, dtype, length, is_larger):
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps:16:collective")
    emitted = traced(lambda: batch_reduce(
        ops, SUM, vectors([length], dtype=dtype)))
    self.assertEqual(bool(kind(emitted, "CollectiveReduceV2")), is_larger)

  @parameterized.parameters(*range(1, 10))
  def test_default_spec_on_one_worker(self, replicas):
    values = vectors([5, 1], replicas)
    self.assertEqual(
        arrays(batch_reduce(tf_cdops.MultiWorkerAllReduce(), SUM, values)),
        sums(values))

  def test_pair_in_several_shards(self):
    values = vectors([1, 2, 7, 30])
    for topology in (None, PAIRED, UNEVEN):
      ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps/xring#3",
                                          topology=topology)
      self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))

  @parameterized.product(spec=("rechd", "hierarchical_copy"),
                         replicas=tuple(range(1, 10)))
  def test_any_number_of_devices_and_any_length(self, spec, replicas):
    values = vectors([1, 2, 3, 7, 10], replicas)
    self.assertEqual(arrays(batch_reduce(make(spec), SUM, values)),
                     sums(values))

  @parameterized.parameters(*ALONE)
  def test_one_input(self, spec):
    values = vectors([3, 5], 1)
    self.assertEqual(arrays(batch_reduce(make(spec), SUM, values)),
                     sums(values))

  @parameterized.product(spec=ALONE + PAIRS, shape=(None, [None], [None, 2]))
  def test_unknown_shapes(self, spec, shape):
    def emit(length: int) -> list[Any]:
      unknown = each(lambda r: of_unknown_shape(tf.fill(
          [length, 2] if shape in (None, [None, 2]) else [length], 1.0 * r),
                                                shape))
      self.assertIsNone(unknown.values[0].shape.num_elements())
      return batch_reduce(make(spec), SUM, [unknown])
    for length in (5, 0):
      (result,) = test_util.run("function", lambda n=length: emit(n))
      self.assertEqual(
          result.arrays, [np.full([length, 2] if shape in (None, [None, 2])
                                  else [length], 10.0).tolist()] * REPLICAS)

  @parameterized.product(spec=ALONE, unknown=((0,), (1, 3)), num_packs=(0, 1))
  def test_shapes_that_some_replicas_do_not_know(self, spec, unknown,
                                                 num_packs):
    def emit() -> list[Any]:
      values = [each(lambda r, n=n: of_unknown_shape(
          tf.fill([n], 1.0 * r), [None] if r - 1 in unknown else [n]))
                for n in (2, 9)]
      return batch_reduce(make(spec, num_packs=num_packs), SUM, values)
    self.assertEqual(
        [result.arrays for result in test_util.run("function", emit)],
        [[[10.0] * n] * REPLICAS for n in (2, 9)])

  @parameterized.parameters(*PACKINGS)
  def test_mixed_dtypes_pack(self, **packing):
    values = [value for pair in zip(*[
        vectors([3, 1, 4], dtype=dtype)
        for dtype in ("float32", "float64", "complex64", "int64")], strict=True)
              for value in pair]
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="xring", **packing)
    results = batch_reduce(ops, SUM, values)
    self.assertEqual(arrays(results), sums(values))
    self.assertEqual([r.values[0].dtype for r in results],
                     [v.values[0].dtype for v in values])

  @parameterized.parameters(*ALONE)
  def test_fewer_elements_than_packs(self, spec):
    values = vectors([1, 2])
    ops = make(spec, num_packs=5)
    self.assertEqual(arrays(batch_reduce(ops, SUM, values)), sums(values))
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", num_packs=5)
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors([1, 2])))
    self.assertLen(kind(emitted, "AddN"), 2)

  @parameterized.parameters(
      (10, 1, 10), (10, 2, 5), (10, 3, 4), (10, 9, 2), (10, 10, 1),
      (11, 10, 2), (12, 10, 2), (20, 10, 2), (21, 10, 3), (10, 0, 10))
  def test_group_limit_is_exact(self, count, group, packs):
    ops = tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="ps", agg_small_grads_max_bytes=8,
        agg_small_grads_max_group=group)
    # Those of 12 bytes, among the small ones, travel alone.
    lengths = [*[2] * (count // 2), 3, *[2] * (count - count // 2), 3]
    emitted = traced(lambda: batch_reduce(ops, SUM, vectors(lengths, 2)))
    self.assertLen(kind(emitted, "AddN"), packs + 2)

  @parameterized.parameters("pscpu/pscpu#2", "xring", "auto")
  def test_slices_have_a_path(self, spec):
    value = test_util.per_replica_slices(
        ([[1.0, 2.0]], [1], [3, 2]), ([[3.0, 4.0]], [1], [3, 2]))
    ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec)
    (result,) = batch_reduce(ops, SUM, [value])
    for part in result.values:
      self.assertIsInstance(part, tf.IndexedSlices)
      self.assertEqual(tf.convert_to_tensor(part).numpy().tolist(),
                       [[0, 0], [4, 6], [0, 0]])

  @parameterized.parameters(*ALONE, *(
      f"{a}/{b}" for a, b in itertools.product(ALONE, ALONE)))
  def test_one_and_two_and_three_are_six(self, spec):
    value = each(float, 3)
    names = virtual_devices.names(3)
    for topology in (None, tf_cdops.Topology.from_devices(
        names, [names[:2], names[2:]])):
      ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec,
                                          topology=topology)
      self.assertEqual(arrays([ops.reduce(SUM, value, value)]), [[6.0] * 3])


BAD_SPECS = (
    ("xrng", r"`algorithm` \('xrng'\) must be one of .*Did you mean 'xring'"),
    ("pscpu/xrng", r"'xrng'.*Did you mean 'xring'"),
    ("Xring", r"'Xring'.*Did you mean 'xring'"),
    ("", "empty part"),
    ((), r"\(\(\)\) must be a text, a tuple .* or a list"),
    ([], r"\(\[\]\) must be a text"),
    ({}, r"\(\{\}\) must be a text"),
    ({"xring": 1}, "must be a text"),
    (7, r"\(7\) must be a text"),
    (None, r"\(None\) must be a text"),
    ("xring#0", r"shards of 'xring' \(0\) must be a whole number of at least"),
    ("xring#-2", r"shards of 'xring' \(-2\)"),
    ("xring#x", "'xring#x', which must be an algorithm's name, or the name"),
    ("xring#1.5", "'xring#1.5', which must be"),
    ("xring#", "'xring#', which must be"),
    ("#2", "'#2', which must be"),
    ("xring##2", "'xring##2', which must be"),
    (("xring", 0), r"shards of 'xring' \(0\)"),
    (("xring", -1, -1), r"shards of 'xring' \(-1\)"),
    (("xring", 1.5), r"shards of 'xring' \(1.5\)"),
    (("xring", "x"), r"shards of 'xring' \('x'\)"),
    (("xring", True), r"shards of 'xring' \(True\)"),
    (("xring", None), r"shards of 'xring' \(None\)"),
    ("xring:64k:ps:64k:rechd", r"limits \(\[65536, 65536\]\) must rise"),
    ("xring:64k:ps:1k:rechd", r"limits \(\[65536, 1024\]\) must rise"),
    ([("xring", 1, -1), ("ps", 1, -1)], "only the last may be -1"),
    ([("xring", 1, 64), ("ps", 1, 128)], r"last limit \(128\) must be -1"),
    (("xring", 1, 64), r"last limit \(64\) must be -1"),
    ("xring:0:ps", r"limit of 'xring' \(0\) must be a positive number"),
    (("xring", 1, 0), r"limit of 'xring' \(0\)"),
    (("xring", 1, -5), r"limit of 'xring' \(-5\)"),
    (("xring", 1, 1.5), r"limit of 'xring' \(1.5\)"),
    (("xring", 1, "1k"), r"limit of 'xring' \('1k'\)"),
    ("xring:1q:ps", r"\('1q'\) must be a number of bytes such as 512, 32k"),
    ("xring:-1:ps", r"\('-1'\) must be a number of bytes"),
    (("xring", 1, -1, 1), r"\(\('xring', 1, -1, 1\)\) must be a tuple of one "),
    ([("xring", 1, 64), "ps"], r"\[1\]` \('ps'\) must be a tuple of one to"),
    ([("xring", 1, 64), ["ps"]], r"\[1\]` \(\['ps'\]\) must be a tuple"),
    ([(1, "xring")], r"the algorithm \(1\) must be a name"),
    ([()], r"\[0\]` \(\(\)\) must be a tuple of one to three"),
    ("nccl:32k", "nothing follows the limit '32k'"),
    ("xring:", "empty part"),
    (":xring", "empty part"),
    ("xring:64k::ps", "empty part"),
    ("xring/", "algorithm"),
    ("/xring", "algorithm"),
    ("xring/ps/rechd", r"one name or a pair 'intra/inter', and has 3 parts"),
    ("auto#2", "'auto' chooses .* it must stand alone"),
    ("auto:1k:ps", "must stand alone"),
    ("auto/ps", "'auto'"),
    ("@/no/such/file.json", r"'@/no/such/file.json'\) must name a readable"),
    ("@", "must name a readable JSON file"),
)
WHOLE = "must be a whole number of at least"
NOT_WHOLE = (-1, 1.5, 2.0, "2", None, True, [1])


class BadInputTest(parameterized.TestCase):

  @parameterized.parameters(*BAD_SPECS)
  def test_spec(self, spec, message):
    for build in (
        lambda: tf_cdops.AllReduceCrossDeviceOps(spec),
        lambda: tf_cdops.AllReduceCrossDeviceOps(all_reduce_alg=spec),
        lambda: tf_cdops.MultiWorkerAllReduce(all_reduce_spec=spec)):
      with self.assertRaisesRegex(ValueError, message):
        build()

  @parameterized.parameters(
      ("{", "must name a readable JSON file: "),
      ("[]", "under the key 'all_reduce_spec'"),
      ('{"all_reduce_spec": 3}', "under the key 'all_reduce_spec'"),
      ('{"all_reduce_spec": "@other.json"}', "under the key"),
      ('{"all_reduce_spec": "xring#0"}',
       r"`all_reduce_\w+, read from \S*spec.json` \('xring#0'\): the shards"),
      ('{"all_reduce_spec": "xrng"}', "Did you mean 'xring'"))
  def test_spec_in_a_file(self, content, message):
    path = self.create_tempfile("spec.json", content).full_path
    for build in (
        lambda: tf_cdops.AllReduceCrossDeviceOps("@" + path),
        lambda: tf_cdops.MultiWorkerAllReduce(all_reduce_spec="@" + path)):
      with self.assertRaisesRegex(ValueError, message):
        build()

  def test_spec_in_a_file_works(self):
    path = self.create_tempfile(
        "spec.json", json.dumps({"all_reduce_spec": "xring:1k:ps#2"})).full_path
    self.assertRegex(repr(tf_cdops.AllReduceCrossDeviceOps("@" + path)),
                     r"'xring:1k:ps#2'")

  @parameterized.parameters(
      *((kind_of, name, number) for kind_of, name, number in itertools.product(
          (tf_cdops.AllReduceCrossDeviceOps, tf_cdops.MultiWorkerAllReduce),
          ("num_packs", "agg_small_grads_max_bytes",
           "agg_small_grads_max_group"), NOT_WHOLE)),
      *((tf_cdops.NcclAllReduce, "num_packs", n) for n in NOT_WHOLE),
      *((tf_cdops.MultiWorkerAllReduce, "num_gpus_per_worker", n)
        for n in NOT_WHOLE if n is not None))
  def test_number(self, kind_of, name, number):
    with self.assertRaisesRegex(
        ValueError, rf"^`{name}` \({re.escape(repr(number))}\) {WHOLE} 0"):
      kind_of(**{name: number})

  @parameterized.parameters(
      ([], r"\(\[\]\) must be a list of device strings, one a worker, such"),
      ("/job:worker/task:0", r"\('/job:worker/task:0'\) must be a list"),
      (3, r"\(3\) must be a list"),
      (["/cpu:0", "/cpu:0"], r"\(\['/cpu:0', '/cpu:0'\]\) must be distinct"),
      (["/cpu:0", "CPU:0"], r"\(.*\) must be distinct"),
      (["/cpu:0", "nonsense"], r"\('nonsense'\) must be a device name; write"),
      (["/job:worker/task:x"], r"\(\S+\) must be a device name"),
      ([""], r"\(''\) must be a device name"),
      ([3], r"\(3\) must be a device name"),
      ([None], r"\(None\) must be a device name"))
  def test_worker_devices(self, worker_devices, message):
    with self.assertRaisesRegex(ValueError, f"^`worker_devices` {message}"):
      tf_cdops.MultiWorkerAllReduce(worker_devices)

  @parameterized.product(kind_of=CLASSES, mode=("dens", None, 3, ["dense"]))
  def test_sparse(self, kind_of, mode):
    with self.assertRaisesRegex(
        ValueError, rf"`sparse` \({re.escape(repr(mode))}\) must be one of "
        r"'gather', 'deduplicate', 'dense'\."
        + (" Did you mean 'dense'" if mode == "dens" else "")):
      kind_of(sparse=mode)

  @parameterized.parameters(
      ({"topology": 3}, r"`topology` \(3\) must be a tf_cdops.Topology"),
      ({"topology": [["/cpu:0"]]}, "must be a tf_cdops.Topology"),
      ({"topology": PAIRED, "worker_devices": ["/cpu:0"]},
       "`topology` and `worker_devices` both group the devices; give one"))
  def test_topology(self, kwargs, message):
    with self.assertRaisesRegex(ValueError, message):
      tf_cdops.MultiWorkerAllReduce(**kwargs)

  @parameterized.product(kind_of=CLASSES, call=(
      (lambda ops, v: ops.reduce("sum", v, v), "`reduce_op` .'sum'. must be"),
      (lambda ops, v: ops.batch_reduce(SUM, 5), "must be an iterable of"),
      (lambda ops, v: ops.batch_reduce(SUM, [(v, 5)]),
       r"`value_destination_pairs\[0\]`: `destinations` .int: 5. must be")))
  def test_calls_are_checked(self, kind_of, call):
    call, message = call
    with self.assertRaisesRegex(ValueError, message):
      call(kind_of(), vectors([2])[0])

  @parameterized.parameters(*CLASSES)
  def test_empty_batch(self, kind_of):
    self.assertEqual(kind_of().batch_reduce(SUM, []), [])


if __name__ == "__main__":
  absltest.main()
