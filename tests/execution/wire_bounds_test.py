"""Holds errors to the bound that `explain` prints: 2,000 random all-reduces."""

import re

from absl.testing import absltest
from absl.testing import parameterized
from tests import virtual_devices

import numpy as np
import tensorflow as tf

import tf_cdops

_CASES = 84  # Of each spec and wire; 24 of those.
# Specs, workers, devices of each, and elements.
_ANY = (("ps#4", 4, 1, 3000), ("xring", 4, 1, 2500), ("rechd", 4, 1, 1030),
        ("ps/ps", 2, 3, 4100), ("xring/xring", 2, 2, 999),
        ("hierarchical_copy", 2, 4, 40), ("auto", 8, 1, 5000))
# What int8 can be had with.
_ONCE = (("ps#4", 4, 1, 3000), ("ps", 3, 1, 5000), ("xring", 4, 1, 6000),
         ("ps/ps", 2, 3, 4100), ("ps#3", 2, 2, 2049), ("xring/ps", 2, 2, 999),
         ("ps/xring", 3, 2, 7000), ("hierarchical_copy/ps", 2, 2, 40),
         ("auto", 8, 1, 5000), ("ps#8", 8, 1, 20))
# The exponents of ten of the least and of the largest numbers.
_SIZES = {"bfloat16": (-30, 30), "float16": (-9, 3), "int8": (-30, 30)}
_BLOCK = 1024


def topology_of(workers, devices):
  names = virtual_devices.names(workers * devices)
  return tf_cdops.Topology.from_devices(names, [
      names[w * devices:(w + 1) * devices] for w in range(workers)])


def printed_bound(spec, topology, length, wire):
  """Returns the bound's part, and what is beside it, as explain prints them."""
  text = " ".join(str(tf_cdops.explain(
      spec, topology, [((length,), "float32")], network="1gbe",
      wire=wire)).split())
  found = re.search(r"so within ([^ ]+)% of the sum of (?:magnitudes|the "
                    r"largest magnitudes of each 1,024)(?: and ([^ ]+[^.; ]))?"
                    r"[.;]", text)
  return float(found[1]) / 100, float(found[2] or 0)


def numbers(rng, replicas, length, wire):
  """Returns terms whose sizes differ by element, by replica, or altogether."""
  least, largest = _SIZES[wire]
  shape = [(1, 1), (1, length), (replicas, 1), (replicas, length)][
      rng.integers(4)]
  exponents = rng.uniform(least, largest, shape)
  found = rng.normal(size=[replicas, length]) * 10.0**exponents
  found[:, rng.random(length) < rng.choice([0, 0.5])] = 0
  return np.clip(found, -10.0**largest, 10.0**largest).astype("float32")


def largest_nearby(magnitudes):
  """Returns the largest in whichever 1,024 an element may be together with."""
  replicas, length = magnitudes.shape
  width = 2 * _BLOCK - 1
  after = -(-(length + width) // width) * width - length - width // 2
  rows = np.pad(magnitudes, [(0, 0), (width // 2, after)]).reshape(
      replicas, -1, width)
  ahead = np.maximum.accumulate(rows, axis=2).reshape(replicas, -1)
  behind = np.maximum.accumulate(rows[:, :, ::-1], axis=2)[:, :, ::-1].reshape(
      replicas, -1)
  return np.maximum(behind[:, :length], ahead[:, width - 1:width - 1 + length])


class BoundsTest(parameterized.TestCase):

  @parameterized.parameters(
      *((wire, *case) for wire in ("bfloat16", "float16") for case in _ANY),
      *(("int8", *case) for case in _ONCE))
  def test_errors(self, wire, spec, workers, devices, length):
    topology = topology_of(workers, devices)
    part, beside = printed_bound(spec, topology, length, wire)
    replicas = workers * devices

    @tf.function(autograph=False)
    def step(values):
      placed = []
      for i, name in enumerate(topology.devices):
        with tf.device(name):
          placed.append(tf.identity(values[i]))
      return tf.stack(tf_cdops.all_reduce(
          placed, spec, topology=topology, network="1gbe", wire=wire))

    rng = np.random.default_rng(abs(hash((workers, length))))
    worst = 0.0
    for _ in range(_CASES):
      terms = numbers(rng, replicas, length, wire)
      results = step(tf.constant(terms)).numpy()
      self.assertEqual(results.tobytes(),
                       np.stack([results[0]] * replicas).tobytes())
      magnitudes = np.abs(terms.astype("float64"))
      of = (largest_nearby(magnitudes) if wire == "int8" else
            magnitudes).sum(axis=0)
      errors = np.abs(results[0] - terms.astype("float64").sum(axis=0))
      bound = part * of + beside
      self.assertTrue((errors <= bound).all(), (errors - bound).max())
      worst = max(worst, (errors[of > 0] / bound[of > 0]).max(initial=0))
    self.assertGreater(worst, 0.2)  # The bound says something.


class NearbyTest(absltest.TestCase):

  def test_largest_nearby(self):
    magnitudes = np.random.default_rng(1).random([2, 5000])
    found = largest_nearby(magnitudes)
    for i in (0, 1, 1022, 1023, 1024, 2047, 3000, 4999):
      near = magnitudes[:, max(0, i - 1023):i + 1024]
      np.testing.assert_array_equal(found[:, i], near.max(axis=1))


if __name__ == "__main__":
  absltest.main()
