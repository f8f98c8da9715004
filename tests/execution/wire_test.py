"""Tests of wires on TensorFlow: sums, errors, bits, and bytes in graphs."""

import copy
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import registrations
from tests import test_util
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops import registry
from tf_cdops.execution import feedback
from tf_cdops.registry import proof

_UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "int8": 1 / 252}


def virtual_workers(workers, devices):
  names = virtual_devices.names(workers * devices)
  return tf_cdops.Topology.from_devices(names, [
      names[w * devices:(w + 1) * devices] for w in range(workers)])


def all_reduce(values, spec, topology, **how):
  """Returns the sum on every device, as arrays."""
  tensors = list(virtual_devices.per_replica(values).values)
  step = tf.function(lambda *parts: tf_cdops.all_reduce(
      placed(parts, topology), spec, topology=topology, **how),
                     autograph=False)
  return [result.numpy() for result in step(*tensors)]


def placed(parts, topology):
  found = []
  for part, name in zip(parts, topology.devices, strict=True):
    with tf.device(name):
      found.append(tf.identity(part))
  return found


class SumsTest(parameterized.TestCase):

  @parameterized.product(
      wire=("bfloat16", "float16"),
      case=(("auto", 4, 1), ("ps#3", 3, 1), ("xring", 4, 1), ("rechd", 5, 1),
            ("ps/ps", 3, 2), ("xring/xring", 2, 3), ("ps/rechd", 4, 2),
            ("hierarchical_copy", 2, 4)),
      length=(1, 7, 1000))
  def test_exact_numbers_stay_exact(self, wire, case, length):
    """Small whole numbers, and their sums, fit into 8 bits."""
    spec, workers, devices = case
    count = workers * devices
    values = [((np.arange(length) + i) % 5).astype("float32")
              for i in range(count)]
    for result in all_reduce(values, spec, virtual_workers(workers, devices),
                             wire=wire):
      np.testing.assert_array_equal(result, sum(values))

  @parameterized.product(wire=("bfloat16", "float16"),
                         dtype=("float32", "float64"))
  def test_errors_are_within_the_bound(self, wire, dtype):
    """Over 2,000 numbers for each of some specs, of very different sizes."""
    rng = np.random.default_rng(3)
    for spec, roundings in (("ps#4", 2), ("auto", 2), ("xring", 4)):
      values = [(rng.normal(size=2000)
                 * 10.0**rng.integers(-3, 4, 2000)).astype(dtype)
                for _ in range(4)]
      results = all_reduce(values, spec, virtual_workers(4, 1), wire=wire,
                           network="1gbe")
      exact = sum(value.astype("float64") for value in values)
      magnitudes = sum(abs(value.astype("float64")) for value in values)
      # What float32 rounds, and float16 below its least normal number.
      slack = 1e-6 * magnitudes + (5 * 2.0**-25 if wire == "float16" else 0)
      bound = ((1 + _UNITS[wire])**roundings - 1) * magnitudes + slack
      errors = abs(results[0].astype("float64") - exact)
      self.assertTrue((errors <= bound).all(), (errors / bound).max())
      self.assertGreater(errors.max(), 0)
      for result in results:
        self.assertEqual(result.tobytes(), results[0].tobytes())

  def test_errors_of_int8_are_within_the_bound(self):
    """Which is one of blocks: of the largest in each 1,024."""
    rng = np.random.default_rng(4)
    values = [(rng.normal(size=4096)
               * 10.0**rng.integers(-3, 4, 4096)).astype("float32")
              for _ in range(4)]
    results = all_reduce(values, "ps", virtual_workers(4, 1), wire="int8")
    exact = sum(value.astype("float64") for value in values)
    largest = sum(abs(value).reshape(4, 1024).max(axis=1).astype("float64")
                  for value in values)
    bound = ((1 + _UNITS["int8"])**2 - 1 + 1e-6) * largest
    errors = abs(results[0] - exact).reshape(4, 1024)
    self.assertTrue((errors <= bound[:, np.newaxis]).all())
    for result in results:
      self.assertEqual(result.tobytes(), results[0].tobytes())

  @parameterized.product(wire=("bfloat16", "float16", "int8"),
                         mode=test_util.MODES)
  def test_what_is_not_finite_spoils_nothing_else(self, wire, mode):
    values = [np.ones(8, "float32") for _ in range(4)]
    values[1][2], values[2][3], values[3][4] = np.inf, np.nan, -np.inf
    topology = virtual_workers(4, 1)
    result, = test_util.run(mode, lambda: [virtual_devices.per_replica(
        tf_cdops.all_reduce(
            list(virtual_devices.per_replica(values).values), "ps",
            topology=topology, wire=wire))])
    expected = np.full(8, 4, "float32")
    expected[2:5] = np.inf, np.nan, -np.inf
    for array in result.arrays:
      np.testing.assert_allclose(array, expected, rtol=1e-6)

  def test_float16_saturates(self):
    values = [np.array([6e4, 1e30, -1e30, 1], "float32")] * 2
    for result in all_reduce(values, "ps", virtual_workers(2, 1),
                             wire="float16"):
      # The sum is made of 65504 and of the root's own, and saturates again.
      np.testing.assert_array_equal(result, [65504, 65504, -65504, 2])

  @parameterized.parameters(*test_util.MODES)
  def test_what_saturates_is_counted(self, mode):
    ops = tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="ps", topology=virtual_workers(2, 1), wire="float16")
    def emit():
      value = virtual_devices.per_replica([tf.constant([7e4, 1.0, np.inf])] * 2)
      return ops.batch_reduce(test_util.SUM, [(value, value)])
    if mode == "graph":
      with tf.Graph().as_default(), test_util.session() as session:
        results = emit()[0].values
        session.run(tf.compat.v1.local_variables_initializer())
        arrays = [session.run(results) for _ in range(3)][-1]
        count = session.run(ops.wire_overflows())
    else:
      step = emit if mode == "eager" else tf.function(
          lambda: emit()[0].values, autograph=False)
      for _ in range(3):
        arrays = step()
      if mode == "eager":
        arrays = arrays[0].values
      count = ops.wire_overflows().numpy()
    for array in arrays:
      np.testing.assert_array_equal(array, [65504, 2, np.inf])
    self.assertEqual(count, 6)  # A term and the sum, in each of three steps.

  @parameterized.parameters("int64", "complex64", "float16")
  def test_other_dtypes_travel_as_they_are(self, dtype):
    values = [np.array([1, 1000, 2047], dtype)] * 2
    for result in all_reduce(values, "ps", virtual_workers(2, 1),
                             wire="bfloat16"):
      np.testing.assert_array_equal(result, values[0] * 2)

  @parameterized.product(mode=test_util.MODES, mean=(False, True))
  def test_classes(self, mode, mean):
    ops = tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="ps", topology=virtual_workers(2, 2), num_packs=1,
        wire="bfloat16")
    op = test_util.MEAN if mean else test_util.SUM
    def emit():
      values = [virtual_devices.per_replica([
          tf.constant([1.0 + i, 257.0]) for i in range(4)]),
                virtual_devices.per_replica([tf.ones([2, 2])] * 4)]
      return ops.batch_reduce(op, [(value, value) for value in values])
    first, second = test_util.run(mode, emit)
    # 257 has nine bits. A worker's two are summed as they are: 514 has nine,
    # too, so the other worker's is 512 or 516, and so is the sum.
    scale = 4 if mean else 1
    for result in first.arrays:
      self.assertEqual(result, first.arrays[0])
      self.assertEqual(result[0], 10 / scale)
      self.assertIn(result[1], (1024 / scale, 1032 / scale))
    for result in second.arrays:
      self.assertEqual(np.array(result).tolist(), [[4 / scale] * 2] * 2)

  @parameterized.product(wire=tuple(_UNITS), spec=("ps", "xring"),
                         shape=([None], [None, 3], None))
  def test_unknown_shapes(self, wire, spec, shape):
    topology = virtual_workers(2, 1)
    @tf.function(input_signature=[tf.TensorSpec(shape)] * 2, autograph=False)
    def step(a, b):
      return tf_cdops.all_reduce(placed([a, b], topology), spec,
                                 topology=topology, wire=wire)
    value = tf.ones([5, 3] if shape != [None] else [5])
    for result in step(value, value):
      np.testing.assert_allclose(result, 2 * value, rtol=1e-6)

  @parameterized.product(wire=tuple(_UNITS), shape=([], [2, 3], [0, 4]),
                         spec=("ps", "ps/ps", "xring"))
  def test_shapes(self, wire, shape, spec):
    values = [np.full(shape, i, "float32") for i in range(4)]
    topology = virtual_workers(*((2, 2) if "/" in spec else (4, 1)))
    for result in all_reduce(values, spec, topology, wire=wire):
      np.testing.assert_allclose(result, np.full(shape, 6), rtol=0.01)

  def test_one_device(self):
    result, = tf_cdops.all_reduce(
        list(virtual_devices.per_replica([tf.constant([257.0])]).values), "ps",
        wire="bfloat16")
    self.assertEqual(result.numpy().tolist(), [257.0])

  @parameterized.parameters("reproducible", "self_check")
  def test_what_a_wire_cant_promise(self, argument):
    with self.assertRaisesRegex(ValueError, r"`wire` \('bfloat16'\) rounds, .*"
                                f"`{argument}` must be False with it"):
      tf_cdops.MultiWorkerAllReduce(all_reduce_spec="ps", wire="bfloat16",
                                    **{argument: True})


class ByElementTest(absltest.TestCase):

  def test_a_message_of_several_is_theirs_one_after_another(self):
    vectors = [tf.constant(np.random.default_rng(n).standard_normal(n),
                           tf.float32) for n in (64, 1, 0, 1024, 7)]
    vectors.append(tf.constant([0.0, -0.0, 1e30, np.inf, -np.inf, np.nan]))
    codecs = [codec for codec in registry.wire_codecs() if codec.by_element]
    self.assertContainsSubset(["bfloat16", "float16"],
                              [codec.name for codec in codecs])
    for codec in codecs:
      together, *alone = (
          tf.bitcast(codec.encode(vector), tf.uint8).numpy().reshape(-1)
          for vector in (tf.concat(vectors, 0), *vectors))
      np.testing.assert_array_equal(together, np.concatenate(alone))
      self.assertLen(together, codec.num_bytes(1102, 4))


class FeedbackTest(parameterized.TestCase):
  """Beside one large number, int8 rounds all small ones to 0."""

  STEPS = 60

  def setUp(self):
    super().setUp()
    self.gradient = np.full(100, 0.3, "float32")
    self.gradient[0] = 252.0

  def ops(self, **how):
    return tf_cdops.MultiWorkerAllReduce(
        all_reduce_spec="ps", topology=virtual_workers(4, 1), wire="int8",
        **how)

  def reduced(self, ops):
    value = virtual_devices.per_replica([tf.constant(self.gradient)] * 4)
    other = virtual_devices.per_replica([tf.ones([3, 5])] * 4)
    return [one for result in ops.batch_reduce(
        test_util.SUM, [(value, value), (other, other)])
            for one in result.values]

  def check(self, steps):
    """Over many steps nothing is lost, and replicas agree in each."""
    total = 0
    for results in steps:
      first, last = results[:4], results[4:]
      for result in first:
        self.assertEqual(result.tobytes(), first[0].tobytes())
      for result in last:
        np.testing.assert_allclose(result, np.full([3, 5], 4), rtol=1e-6)
      total = total + first[0].astype("float64")
    mean = total / len(steps)
    np.testing.assert_allclose(mean[0], 4 * 252, rtol=1e-3)
    np.testing.assert_allclose(mean[1:], np.full(99, 1.2), atol=0.2)

  def test_eager(self):
    ops = self.ops()
    self.check([[r.numpy() for r in self.reduced(ops)]
                for _ in range(self.STEPS)])

  def test_function(self):
    ops = self.ops()
    step = tf.function(lambda: self.reduced(ops), autograph=False)
    self.check([[r.numpy() for r in step()] for _ in range(self.STEPS)])

  def test_under_a_strategy(self):
    strategy = tf.distribute.MirroredStrategy(
        virtual_devices.names(4), cross_device_ops=self.ops())
    @tf.function(autograph=False)
    def step():
      value = virtual_devices.per_replica([tf.constant(self.gradient)] * 4)
      return strategy.extended.batch_reduce_to(
          test_util.SUM, [(value, value)])[0].values
    with strategy.scope():
      steps = [[r.numpy() for r in step()] for _ in range(self.STEPS)]
    mean = sum(results[0].astype("float64") for results in steps) / self.STEPS
    np.testing.assert_allclose(mean[1:], np.full(99, 1.2), atol=0.2)

  def test_graph(self):
    ops = self.ops()
    with tf.Graph().as_default():
      results = self.reduced(ops)
      with test_util.session() as session:
        session.run(tf.compat.v1.local_variables_initializer())
        self.check([session.run(results) for _ in range(self.STEPS)])

  def test_equal_batches_of_a_function_have_their_own(self):
    ops = self.ops()
    large = np.full(100, 1e6, "float32")
    large[0] = 1e6 / 3
    @tf.function(autograph=False)
    def step():
      results = []
      for numbers in (large, self.gradient * 1e-6):
        value = virtual_devices.per_replica([tf.constant(numbers)] * 4)
        results.append(ops.reduce(test_util.SUM, value, value).values[0])
      return results
    for _ in range(3):
      _, small = step()
      np.testing.assert_allclose(small[0], 4 * 252e-6, rtol=0.02)

  def test_other_packs_have_their_own(self):
    ops = self.ops(num_packs=1)
    values = [virtual_devices.per_replica([tf.ones([n])] * 4)
              for n in (300, 200, 100)]
    for cap in (0, 1000, 4000):
      results = ops.batch_reduce(
          test_util.SUM, [(value, value) for value in values],
          options=tf.distribute.experimental.CommunicationOptions(
              bytes_per_pack=cap))
      for result in results:
        np.testing.assert_allclose(result.values[0], 4, rtol=1e-6)

  def test_without_state_it_is_lost(self):
    for result in all_reduce([self.gradient] * 4, "ps", virtual_workers(4, 1),
                             wire="int8"):
      self.assertLess(result[1], 0.9)

  def test_what_is_not_finite_does_not_come_back(self):
    ops = self.ops()
    self.gradient[3] = np.inf
    with_it = self.reduced(ops)[0].numpy()
    self.assertEqual(with_it[3], np.inf)
    self.assertTrue(np.isfinite(np.delete(with_it, 3)).all())
    self.gradient[3] = 0.3
    self.assertTrue(np.isfinite(self.reduced(ops)[0].numpy()).all())

  def test_copies_and_new_shapes_keep_nothing(self):
    ops = self.ops()
    self.enter_context(mock.patch.object(feedback, "_MOST", 8))
    self.reduced(ops)
    self.assertNotEmpty(ops._feedback._batches)
    self.assertEmpty(copy.deepcopy(ops)._feedback._batches)
    self.assertEqual(ops.wire_overflows().numpy(), 0)
    for length in range(1, 12):
      value = virtual_devices.per_replica([tf.ones([length])] * 4)
      ops.reduce(test_util.SUM, value, value)
    self.assertLen(ops._feedback._batches, 8)


class MistakesTest(absltest.TestCase):

  def test_a_decode_of_another_shape(self):
    for decode in (lambda message, like: message[:1],
                   lambda message, like: tf.cast(message, tf.int32),
                   lambda message, like: 5):
      codec = registry.WireCodec(
          "short", "", lambda vector: vector, decode,
          lambda elements, itemsize: elements * itemsize,
          frozenset(["float32"]), 0.0)
      with self.assertRaisesRegex(
          ValueError, r"`wire` \('short'\) must decode to a vector of 3 "
          "float32, as was encoded, and gives .*; mend the codec's `decode`"):
        tf_cdops.all_reduce(
            list(virtual_devices.per_replica([tf.ones([3])] * 2).values), "ps",
            topology=virtual_workers(2, 1), wire=codec)

  def test_an_algorithm_that_a_wire_makes_wrong(self):
    """Each device sums by itself: without a wire, to the same bits."""
    self.enter_context(registrations.undone())
    @tf_cdops.register_all_reduce("all_add", description="Each adds all.")
    def all_add(fabric, values, group):
      return [fabric.add(values, place, in_order=True)
              for place in group.places]
    values = list(virtual_devices.per_replica([tf.ones([3])] * 2).values)
    for spec in ("all_add", "all_add#2"):
      for result in tf_cdops.all_reduce(values, spec,
                                        topology=virtual_workers(2, 1)):
        np.testing.assert_array_equal(result, [2, 2, 2])
      with self.assertRaisesRegex(
          ValueError, rf"`wire` \('bfloat16'\) can't be had with '{spec}': "
          f"{spec} sums in another order on .* so their bits may differ. Use "
          "'auto' or 'ps'"):
        tf_cdops.all_reduce(values, spec, topology=virtual_workers(2, 1),
                            wire="bfloat16")

  def test_an_algorithm_of_ones_own(self):
    self.enter_context(registrations.undone())
    @tf_cdops.register_all_reduce("at_first", description="One sums for all.")
    def at_first(fabric, values, group):
      total = fabric.add(values, group.places[0])
      return [fabric.copy(total, place) for place in group.places]
    values = [np.array([1, 257], "float32"), np.array([1, 2], "float32")]
    for result in all_reduce(values, "at_first", virtual_workers(2, 1),
                             wire="bfloat16"):
      np.testing.assert_array_equal(result, [2, 260])  # 259 has nine bits.

  def test_wrong_arguments(self):
    for wrong in (
        lambda: tf_cdops.MultiWorkerAllReduce(wire="zip"),
        lambda: tf_cdops.AllReduceCrossDeviceOps("ps", wire="zip"),
        lambda: tf_cdops.all_reduce([tf.ones([2])], wire="zip"),
        lambda: tf_cdops.explain("ps", virtual_workers(2, 1), [8],
                                 wire="zip")):
      with self.assertRaisesRegex(ValueError, r"`wire` \('zip'\) must be None"):
        wrong()

  def test_settings_are_shown(self):
    ops = tf_cdops.AllReduceCrossDeviceOps("ps", wire="float16",
                                           wire_scope="all")
    self.assertIn("wire='float16', wire_scope='all'", repr(ops))


class XlaTest(parameterized.TestCase):

  @parameterized.product(wire=tuple(_UNITS), spec=("ps#2", "xring"))
  def test_rounds_all_the_same(self, wire, spec):
    """XLA may leave out casts there and back, and doesn't here."""
    rng = np.random.default_rng(5)
    values = tf.constant(rng.normal(size=[4, 3000]), tf.float32)
    topology = virtual_workers(4, 1)
    emit = lambda values: tf.stack(tf_cdops.all_reduce(
        tf.unstack(values), spec, topology=topology, wire=wire))
    found = tf.function(emit, jit_compile=True, autograph=False)(values).numpy()
    plain = np.sum(values.numpy(), axis=0)
    # TensorFlow 2.16's leaves out bfloat16's: sums are the more exact.
    if wire != "bfloat16" or not tf.__version__.startswith("2.16."):
      self.assertLess((found[0] == plain).mean(), 0.1)
    np.testing.assert_allclose(found[0], plain, atol=8 * 4 * _UNITS[wire])
    for result in found:
      self.assertEqual(result.tobytes(), found[0].tobytes())


class BytesTest(parameterized.TestCase):

  @parameterized.parameters(
      *(("bfloat16", spec) for spec in (
          "ps", "ps#3", "xring", "rechd", "ps/ps", "xring/xring",
          "hierarchical_copy/ps")),
      *(("int8", spec) for spec in ("ps", "ps#3", "ps/ps", "xring/ps",
                                    "hierarchical_copy/ps")))
  def test_in_the_graph_as_in_the_trace_and_in_explain(self, wire, spec):
    topology = virtual_workers(3, 2)
    length = 6 * 256  # No message has fewer.
    sources = []

    def step(*values):
      sources.extend(placed(values, topology))
      return tf_cdops.all_reduce(sources, spec, topology=topology, wire=wire)

    graph = tf.function(step, autograph=False).get_concrete_function(
        *[tf.TensorSpec([length])] * 6).graph
    line, = tf_cdops.parse_all_reduce_spec(spec)
    trace = proof.prove(registry.wired(registry.lookup(*line[:2]),
                                       registry.check_wire(wire)),
                        topology, length)
    worker = {name: w for w, ranks in enumerate(topology.workers)
              for name in [topology.devices[rank] for rank in ranks]}
    traced = sum(t.num_bytes(4) for t in trace.transfers
                 if worker[t.source] != worker[t.target])
    self.assertEqual(_bytes_across(graph, sources, worker), traced)
    plain, coded = (tf_cdops.explain(
        spec, topology, [((length,), "float32")], wire=how).total.across
                    for how in (None, wire))
    self.assertEqual(coded, traced)
    if wire == "int8":
      self.assertBetween(coded / plain, 0.25, 0.26)
    else:
      self.assertEqual(2 * coded, plain)


def _bytes_across(graph, sources, worker):
  """Counts what edges between workers carry, to each device once."""
  place = {tensor.name: tensor.device for tensor in sources}
  crossing = {}
  for op in graph.get_operations():  # An op comes after its inputs.
    inputs = [tensor for tensor in op.inputs if tensor.name in place]
    device = (place[inputs[0].name] if inputs and op.type == "EnsureShape"
              else op.device)
    if inputs:
      place.update((tensor.name, device) for tensor in op.outputs)
    crossing.update({(tensor.name, device): tensor for tensor in inputs
                     if device and worker[place[tensor.name]] != worker[device]
                     })
  return sum(tensor.shape.num_elements() * tensor.dtype.size
             for tensor in crossing.values())


if __name__ == "__main__":
  absltest.main()
