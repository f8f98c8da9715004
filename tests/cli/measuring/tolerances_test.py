"""Tests of how far from exact sums results with a wire may be."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices

import numpy as np

import tf_cdops
from tf_cdops import registry
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import tolerances
from tf_cdops.planning import planner

_SIZES = (planner.TensorSize.from_shape((500,), "float32"),)


def tolerance(spec, wire, workers=4):
  topology = tf_cdops.Topology.grid(workers, 1, device_type="CPU")
  plan = planner.plan(_SIZES, topology, tf_cdops.parse_all_reduce_spec(spec),
                      wire=registry.check_wire(wire))
  return tolerances.of_plan(plan, topology)


class TolerancesTest(parameterized.TestCase):

  def test_what_holds(self):
    found = tolerance("ps", "bfloat16")
    self.assertAlmostEqual(found.bound, (1 + 2**-8)**2 - 1)
    np.testing.assert_array_equal(
        found.holds(np.array([100.7, 100.9, 0.0]), np.array([100, 100, 0]),
                    1e9), [True, False, True])
    self.assertGreater(tolerance("xring", "bfloat16").bound, found.bound)
    self.assertIsNone(tolerance("ps", None))
    self.assertIsNone(tolerance("ps", "bfloat16", workers=1))

  def test_of_blocks(self):
    found = tolerance("ps", "int8")  # Twice 0.8% of the largest.
    np.testing.assert_array_equal(
        found.holds(np.array([16.1, 15.0]), np.array([0.0, 0.0]), 1000.0),
        [False, True])

  @parameterized.parameters(("bfloat16", 0), ("wrong", 1500), ("differs", 500))
  def test_counts(self, how, wrong):
    """What is beyond the bound on three devices, or not on all the same."""
    codec = registry.check_wire("bfloat16").codec
    decode = {"bfloat16": codec.decode,
              "wrong": lambda message, like: codec.decode(message, like) * 1.1,
              "differs": lambda message, like: codec.decode(message, like) * (
                  1.001 if "CPU:2" in message.device else 1)}[how]
    site = sites.Site(tuple(virtual_devices.names(3)))
    own = registry.WireCodec(
        "own", "", codec.encode, decode, codec.num_bytes, codec.dtypes,
        codec.unit, True)
    contender = contenders.of_spec(
        "ps", wire=registry.check_wire(own, "all"))
    inputs = exact_inputs.make(site, _SIZES)
    step = steps.build(contender, inputs, eager=True)
    self.assertEqual(steps.count_wrong(step, inputs), wrong)


if __name__ == "__main__":
  absltest.main()
