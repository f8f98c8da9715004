"""Tests of the measuring library: that what it measures is what it says."""

import dataclasses
import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops import cost
from tf_cdops.base import errors
from tf_cdops.cli import loads
from tf_cdops.cli.measuring import comparison
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import memory
from tf_cdops.cli.measuring import results
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing
from tf_cdops.planning import planner

_LOSES_ALL_BUT_ONE = contenders.Contender(
    "loses", True, lambda: tf.distribute.ReductionToOneDevice(
        accumulation_fn=lambda values: values[0]))


def make_inputs(devices, sizes="3x400,1x40k", dtype="float32"):
  site = sites.Site(tuple(virtual_devices.names(devices)))
  return exact_inputs.make(site, loads.parse_sizes(sizes, dtype).sizes)


class SitesTest(parameterized.TestCase):

  def test_local(self):
    site = sites.local("CPU", 3)
    self.assertEqual(site.devices, tuple(virtual_devices.names(3)))
    self.assertTrue(site.is_local)
    self.assertEqual(str(site), "3 CPU devices")
    self.assertLen(sites.local("CPU").devices, virtual_devices.COUNT)

  @parameterized.parameters(
      ("CPU", 17, r"`devices` \(17\) .* there are 16 of type CPU"),
      ("GPU", None, r"`devices` \(all\) .* there are 0 of type GPU"))
  def test_missing_devices(self, kind, count, message):
    with self.assertRaisesRegex(errors.InputError, message):
      sites.local(kind, count)

  def test_workers(self):
    site = sites.Site(tuple(
        f"/job:worker/replica:0/task:{t}/device:CPU:{d}"
        for t in range(2) for d in range(2)))
    self.assertFalse(site.is_local)
    self.assertEqual(str(site), "4 CPU devices of 2 workers")

  @parameterized.parameters((1, 1, None), (2, 1, 1.0), (4, 2, 1.5))
  def test_the_least_that_cables_allow(self, workers, devices, expected):
    names = tuple(f"/job:worker/replica:0/task:{t}/device:CPU:{d}"
                  for t in range(workers) for d in range(devices))
    self.assertIsNone(sites.Site(names).least_seconds(1000))
    site = sites.Site(names, "8kbit", link=cost.Link("8kbit", 7.0, 1000.0))
    self.assertEqual(site.least_seconds(1000), expected)

  def test_other_cables(self):
    cluster = tf_cdops.LocalCluster(2, bandwidth="1gbit")
    names = tuple(f"/job:worker/replica:0/task:{t}/device:CPU:0"
                  for t in range(2))
    site = sites.Site(names, "1gbit", link=cluster.link, cluster=cluster)
    slow = site.with_bandwidth("100mbit")
    self.assertEqual(str(slow), "2 CPU devices of 2 workers with cables of "
                     "100mbit")
    self.assertEqual(slow.link, cluster.link)
    self.assertAlmostEqual(
        site.link.bytes_per_second / slow.link.bytes_per_second, 10)
    # By the cables' rate, not by what is left of it for a payload.
    self.assertEqual([one.least_seconds(125_000_000) for one in (site, slow)],
                     [1.0, 10.0])

  def test_one_default_strategy(self):
    site = sites.local("CPU", 2)
    rated = dataclasses.replace(site, bandwidth="1gbit")
    self.assertIs(site.strategy(None), rated.strategy(None))
    ops = tf.distribute.ReductionToOneDevice()
    self.assertIsNot(site.strategy(ops), site.strategy(ops))


class ExactInputsTest(parameterized.TestCase):

  @parameterized.product(
      dtype=("float16", "bfloat16", "float32", "int32", "complex64"),
      replicas=(1, 2, 16))
  def test_sums_are_exact(self, dtype, replicas):
    inputs = make_inputs(replicas, "1x160,2x40k", dtype)
    self.assertEqual((inputs.num_bytes, len(inputs.variables)), (82080, 3))
    for tensor, row in enumerate(inputs.variables):
      values = [v.numpy() for v in row]
      exact = sum(value.astype(np.complex128) for value in values)
      in_turn = values[0]
      for value in values[1:]:
        in_turn = in_turn + value
      for total in (in_turn, inputs.expected(tensor)):
        self.assertEqual(total.dtype, values[0].dtype)
        np.testing.assert_array_equal(total.astype(np.complex128), exact)

  def test_replicas_tensors_and_elements_differ(self):
    inputs = make_inputs(3, "2x40k")
    values = [v.numpy() for row in inputs.variables for v in row]
    for one, other in itertools.combinations(values, 2):
      self.assertLess(np.mean(one == other), 0.05)
    for part in range(1, 10):  # A rotated result can't pass.
      self.assertLess(np.mean(values[0] == np.roll(values[0], part)), 0.05)

  def test_on_their_devices(self):
    inputs = make_inputs(3)
    for row in inputs.variables:
      self.assertEqual([v.device for v in row], list(inputs.site.devices))


class StepsTest(parameterized.TestCase):

  @parameterized.product(eager=(False, True),
                         spec=("auto", "xring#2", "ps:1k:collective"))
  def test_ours(self, eager, spec):
    inputs = make_inputs(3)
    step = steps.build(contenders.of_spec(spec), inputs, eager)
    step.run()
    self.assertEqual((step.name, step.ours), (spec, True))
    self.assertEqual(steps.count_wrong(step, inputs), 0)
    self.assertEqual(step.nodes > 0 and step.build_seconds > 0, not eager)

  @parameterized.parameters((1, False), (2, False), (3, True), (4, False))
  def test_tensorflows(self, devices, loses_a_replica):
    inputs = make_inputs(devices)
    wrong = {}
    *others, default = contenders.of_tensorflow()
    # Its collectives would clash with those of other tests in this process.
    self.assertEqual(default.name, "TF default")
    for contender in others:
      self.assertFalse(contender.ours)
      wrong[contender.name] = steps.count_wrong(
          steps.build(contender, inputs), inputs)
    everything = devices * inputs.num_elements if loses_a_replica else 0
    self.assertEqual(wrong, {
        "TF ReductionToOneDevice": 0,
        "TF HierarchicalCopy(0)": everything,
        "TF HierarchicalCopy(1)": everything})

  def test_every_wrong_element_counts(self):
    inputs = make_inputs(3)
    step = steps.build(_LOSES_ALL_BUT_ONE, inputs)
    self.assertEqual(steps.count_wrong(step, inputs),
                     3 * inputs.num_elements)

  @parameterized.parameters(False, True)
  def test_floor(self, eager):
    inputs = make_inputs(3)
    step = steps.build_floor(inputs, eager)
    step.run()
    self.assertEqual(steps.count_wrong(step, inputs), 0)
    self.assertLen(step.results()[0], 1)
    self.assertEqual(step.nodes, 0 if eager else len(inputs.sizes))

  def test_packing(self):
    inputs = make_inputs(2, "20x400")
    plain, packed = (
        steps.build(contenders.of_spec("ps", packing), inputs).nodes
        for packing in (None, planner.Packing(num_packs=1)))
    self.assertLess(packed, plain)

  def test_packing_of_a_file(self):
    inputs = make_inputs(2, "20x400")
    path = self.create_tempfile(
        "spec.json", '{"all_reduce_spec": "ps", "num_packs": 1}').full_path
    plain, packed, of_file, wanted = (
        steps.build(contenders.of_spec(*args), inputs).nodes
        for args in (("ps",), ("ps", planner.Packing(num_packs=1)),
                     (f"@{path}",), (f"@{path}", planner.Packing(4))))
    self.assertEqual(of_file, packed)
    self.assertBetween(wanted, packed + 1, plain - 1)

  def test_the_algorithm_is_what_is_measured(self):
    # Values that don't say where they are would be summed on one device.
    inputs = make_inputs(3, "4k")
    nodes = {spec: steps.build(contenders.of_spec(spec), inputs).nodes
             for spec in ("ps", "ps#3", "xring")}
    self.assertLess(nodes["ps"], nodes["ps#3"])
    self.assertLess(nodes["ps"], nodes["xring"])

  @parameterized.parameters(
      ("nccl", errors.AlgorithmError, "nccl needs GPU devices only"),
      ("xrng", errors.AlgorithmError, "Did you mean 'xring'"),
      ("xring:1k", errors.SpecError, "nothing follows the limit"))
  def test_check_spec(self, spec, error, message):
    inputs = make_inputs(2)
    with self.assertRaisesRegex(error, message):
      contenders.check_spec(spec, inputs.site.topology, inputs.sizes)


class TimingTest(absltest.TestCase):

  def test_summary(self):
    self.assertEqual(timing.Summary.from_samples([3.0, 1.0, 2.0]),
                     timing.Summary(1.0, 2.0, 3.0, 3, 1.0, 3.0))
    self.assertEqual(timing.Summary.from_samples(range(1, 201)),
                     timing.Summary(1, 100.5, 198, 200, 86, 115))

  def test_the_median_is_in_its_interval(self):
    # Held against all ways of 25 samples to fall: 2**25 throws of a coin.
    count = 25
    summary = timing.Summary.from_samples(range(count))
    outside = sum(math.comb(count, below) for below in range(count + 1)
                  if not summary.low < below <= summary.high)
    self.assertLess(outside / 2**count, 0.05)
    self.assertGreater(outside / 2**count, 0.01)

  def test_rounds_take_turns(self):
    order = []
    runs = {name: lambda name=name: order.append(name) for name in "abc"}
    for seconds in itertools.islice(timing.rounds(runs), 60):
      self.assertCountEqual(seconds, "abc")
    for first, second in itertools.permutations("abc", 2):
      self.assertGreater("".join(order).count(first + second), 5)
    again = [name for names in itertools.islice(timing.orders("abc"), 60)
             for name in names]
    self.assertEqual(again, order)


class ResultsTest(absltest.TestCase):

  def test_bandwidths(self):
    result = results.Result("ps", True, 1000, 250, "float32", 1, 4,
                            timing.Summary(1.0, 2.0, 3.0, 20, 1.5, 2.5), 0,
                            0.5, 7, "1gbit", 1e9, 1.25)
    self.assertEqual((result.algbw, result.busbw), (500, 750))
    self.assertEqual(result.to_dict(), {
        "contender": "ps", "ours": True, "num_bytes": 1000,
        "num_elements": 250, "dtype": "float32", "tensors": 1, "replicas": 4,
        "time": {"least": 1.0, "median": 2.0, "p99": 3.0, "samples": 20,
                 "low": 1.5, "high": 2.5},
        "wrong": 0, "build_seconds": 0.5, "nodes": 7, "algbw": 500,
        "busbw": 750, "bandwidth": "1gbit", "bits_per_second": 1e9,
        "least_seconds": 1.25, "tolerance": None})

  def test_comparison(self):
    inputs = make_inputs(3)
    compared = comparison.Comparison(inputs)
    compared.add(steps.build(contenders.of_spec("auto"), inputs))
    compared.add(steps.build(_LOSES_ALL_BUT_ONE, inputs))
    self.assertEmpty(compared.results())
    rounds = []
    compared.run(4, after_each=lambda: rounds.append(len(compared.results())))
    self.assertEqual(rounds, [2, 2, 2, 2])
    ours, loses = compared.results()
    self.assertEqual((ours.contender, ours.wrong, ours.time.samples),
                     ("auto", 0, 4))
    self.assertEqual((loses.contender, loses.wrong),
                     ("loses", 3 * inputs.num_elements))
    self.assertEqual((ours.num_bytes, ours.tensors, ours.replicas, ours.dtype),
                     (42160, 4, 3, "float32"))


class LimitsTest(parameterized.TestCase):

  @parameterized.parameters((1 << 20, 2, 8 << 20), (1 << 20, 2, 9 << 20))
  def test_fits(self, num_bytes, replicas, available):
    memory.check_fits(num_bytes, replicas, "--sizes", available)

  def test_does_not_fit(self):
    with self.assertRaisesRegex(
        errors.InputError,
        r"^`--sizes` \(20m on each of 2 devices\) must fit in memory: that "
        r"takes about 160m, and 100m are available; reduce at most 12m, or "
        r"use fewer devices\.$"):
      memory.check_fits(20 << 20, 2, "--sizes", 100 << 20)

  def test_memory_is_known(self):
    self.assertGreater(memory.available_bytes(), 1 << 20)

  def test_what_does_not_end_is_ended(self):
    outcome = python_process.run("-c", """if True:
        import threading
        from tf_cdops.cli.measuring import limits
        with limits.limit(60, "this"):
          print("in time", flush=True)
        with limits.limit(0.1, "that"):
          threading.Event().wait()
        """)
    self.assertEqual(
        (outcome.returncode, outcome.stdout, outcome.stderr),
        (3, "in time\n", "tf_cdops: that has not ended after 0.1 s, and "
         "TensorFlow can't cancel it. Ending the program.\n"))


if __name__ == "__main__":
  absltest.main()
