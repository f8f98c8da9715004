"""Proves every all-reduce algorithm, and that the proof sees what is wrong."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from tests import all_reduce_contract
from tests import python_process
from tests import registrations

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.registry import proof

workers_of = all_reduce_contract.workers_of


# Every algorithm that is registered has its contract tested.
for _known in registry.all_reduce_algorithms():
  _test = f"{_known.name.title().replace('_', '')}Test"
  globals()[_test] = type(_test, (all_reduce_contract.Contract,),
                          {"algorithm": _known.name, "__module__": __name__})
del _known, _test


def chain_reduce(fabric, values, group):
  """Sums from the first device to the last."""
  total = values[0]
  for value, place in zip(values[1:], group.places[1:], strict=True):
    total = fabric.add([total, value], place)
  return total


def chain_broadcast(fabric, value, group):
  """Hands the sum back from the last device to the first."""
  results = []
  for place in reversed(group.places):
    value = fabric.copy(value, place)
    results.insert(0, value)
  return results


def chain_traffic(length, group):
  links = [registry.phase(1, np.array([i]), np.array([i + 1]), length)
           for i in range(len(group.places) - 1)]
  return registry.Traffic(
      tuple(links), tuple(link.back() for link in reversed(links)),
      np.array([len(links)]), np.array([length]))


def everyone(fabric, values, group):
  """Sends every value to every device; each sums for itself."""
  return [fabric.add(values, place) for place in group.places]


class ThirdParty(all_reduce_contract.Contract):
  """Registers an algorithm for the time of a test."""

  def setUp(self):
    super().setUp()
    self.enter_context(registrations.undone())
    self.register()


class ThirdPartyWithPhasesTest(ThirdParty):
  algorithm = "chain"

  def register(self):
    @registry.register_all_reduce(
        "chain", description="There and back.", reduce=chain_reduce,
        broadcast=chain_broadcast, traffic=chain_traffic)
    def chain(fabric, values, group):
      return chain_broadcast(fabric, chain_reduce(fabric, values, group), group)
    del chain


class ThirdPartyWithoutPhasesTest(ThirdParty):
  algorithm = "everyone"

  def register(self):
    registry.register_all_reduce("everyone", description="All to all.")(
        everyone)


del ThirdParty  # It is no test itself.


class EveryAlgorithmTest(absltest.TestCase):

  def test_is_proved_without_tensorflow(self):
    done = python_process.run("-c", (
        "import sys, unittest, tf_cdops\n"
        "sys.modules['tensorflow'] = None\n"
        "unittest.main('tests.algorithms.algorithm_proof_test',\n"
        "              argv=['', 'XringTest.test_lower_bounds'])"))
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertRegex(done.stderr, r"Ran 1 test[^$]*OK")


def prove(name: str, *sizes: int, length: int, shards: int = 1,
          kind: str = "GPU") -> proof.Trace:
  return proof.prove(registry.lookup(name, shards),
                     workers_of(*sizes, kind=kind), length)


def crossing(trace: proof.Trace) -> list[Any]:
  """The transfers between workers."""
  worker = lambda name: name.split("/device")[0]
  return [transfer for transfer in trace.transfers
          if worker(transfer.source) != worker(transfer.target)]


class PairsTest(parameterized.TestCase):

  @parameterized.parameters((2, 1), (2, 4), (3, 2), (4, 2))
  def test_scattered_rings(self, w, g):
    n = 10 * w * g
    trace = prove("xring/xring", *[g] * w, length=n)
    self.assertEqual(trace.steps, 2 * (g - 1) + 2 * (w - 1))
    self.assertEqual(trace.moved, 2 * (w * g - 1) * n)
    across = collections.Counter()
    for transfer in crossing(trace):
      across[transfer.source] += transfer.elements
    # Every device carries its share between workers.
    share = 2 * (w - 1) * n // (w * g)
    self.assertEqual(list(across.values()), [share] * w * g)

  @parameterized.product(
      intra=("ps", "xring", "rechd", "hierarchical_copy"),
      inter=("ps", "xring", "rechd", "hierarchical_copy"))
  def test_devices_of_a_worker_add_no_traffic_across(self, intra, inter):
    for w in (2, 3, 4):
      for g in (1, 2, 4):
        trace = prove(f"{intra}/{inter}", *[g] * w, length=100)
        self.assertEqual(sum(t.elements for t in crossing(trace)),
                         2 * (w - 1) * 100, (w, g))

  @parameterized.parameters("ps/xring", "hierarchical_copy/rechd")
  def test_without_a_scatter_one_leader_a_worker_crosses(self, name):
    trace = prove(name, 4, 4, 4, 4, length=100)
    self.assertLen({transfer.source for transfer in crossing(trace)}, 4)


class RolesTest(parameterized.TestCase):
  """The shard's number rotates who does what."""

  @parameterized.parameters(
      ("ps", "CPU", (4,), 4), ("psgpu", "GPU", (4,), 4),
      ("pscpu", "GPU", (2, 2, 2), 3), ("pscpu/ps", "GPU", (2, 2), 2),
      ("ps/ps", "CPU", (2, 2), 4), ("xring", "CPU", (4,), 4),
      ("rechd", "CPU", (4,), 4))
  def test_shards_are_summed_in_different_places(self, name, kind, sizes,
                                                 places):
    trace = prove(name, *sizes, length=60, shards=12, kind=kind)
    self.assertLen({addition.place for addition in trace.additions}, places)

  @parameterized.parameters(("ps", 3), ("hierarchical_copy", 2))
  def test_shards_share_the_load(self, name, received):
    # Alone, a shard's root gets `received` vectors; in turns, all get as much.
    p, n = 4, 400
    trace = prove(name, p, length=n, shards=p)
    self.assertEqual(prove(name, p, length=n).busiest, received * n)
    self.assertEqual(trace.busiest, trace.moved // p)

  @parameterized.parameters("xring", "ps/xring", "hierarchical_copy/ps")
  def test_shards_cross_between_workers_on_different_devices(self, name):
    crossed = lambda shards: {transfer.source for transfer in crossing(
        prove(name, 4, 4, length=80, shards=shards, kind="CPU"))}
    self.assertLess(len(crossed(1)), 8)
    self.assertGreater(len(crossed(4)), len(crossed(1)))

  def test_ring_order_rotates_inside_workers(self):
    trace = prove("xring", 4, 4, length=80, shards=4)
    self.assertLen({transfer.source for transfer in crossing(trace)}, 8)

  def test_folded_ranks_rotate(self):
    # With 3 devices one is folded into another: it adds nothing itself.
    adding = lambda shards: {addition.place for addition in prove(
        "rechd", 3, length=30, shards=shards).additions}
    self.assertLen(adding(1), 2)
    self.assertLen(adding(3), 3)


class Tampered:
  """A fabric that is honest but for one time, at its `at`-th chance."""

  def __init__(self, at: int | None = None):
    self.chances, self._at = 0, at
    self.honest: Any = None

  def strikes(self) -> bool:
    self.chances += 1
    return self.chances - 1 == self._at

  def split(self, value: Any, count: int) -> list[Any]:
    return self.honest.split(value, count)

  def concat(self, parts: Sequence[Any], place: str) -> Any:
    return self.honest.concat(parts, place)

  def add(self, values: Sequence[Any], place: str) -> Any:
    return self.honest.add(values, place)

  def copy(self, value: Any, place: str) -> Any:
    return self.honest.copy(value, place)


class DropsAnAddend(Tampered):

  def add(self, values, place):
    dropped = len(values) > 1 and self.strikes()
    return super().add(values[:-1] if dropped else values, place)


class AddsOneTwice(Tampered):

  def add(self, values, place):
    return super().add([*values, *values[:self.strikes()]], place)


class DropsATransfer(Tampered):

  def copy(self, value, place):
    if value.place == place or not self.strikes():
      return super().copy(value, place)
    return super().copy(super().split(value, value.length + 1)[-1], place)


class SwapsJoinedParts(Tampered):

  def concat(self, parts, place):
    swapped = len(parts) > 1 and self.strikes()
    return super().concat(parts[::-1] if swapped else parts, place)


class SwapsCutParts(Tampered):

  def split(self, value, count):
    parts = super().split(value, count)
    return parts[::-1] if count > 1 and self.strikes() else parts


class ForgetsAPart(Tampered):

  def concat(self, parts, place):
    return super().concat(
        parts[1:] if len(parts) > 1 and self.strikes() else parts, place)


class AddsInAnotherOrder(Tampered):

  def add(self, values, place):
    return super().add(values[::-1] if self.strikes() else values, place)


def tampered_with(algorithm: registry.Algorithm,
                  fabric: Tampered) -> registry.Algorithm:
  def all_reduce(honest, values, group):
    fabric.honest = honest
    return algorithm.all_reduce(fabric, values, group)
  return dataclasses.replace(algorithm, all_reduce=all_reduce)


_LEFT_OUT = r"leaves elements \d+ to \d+ of replica \d+ out on /job:worker"
_MISPLACED = r"leaves element \d+ on /job\S+ where element \d+ should be"
_MISADDED = r"element \d+ is added to element \d+"
_TOO_FEW = r"leaves \d+ of \d+ elements on /job:worker"
_ANOTHER_ORDER = r"sums in another order on \S+ than on \S+, so their bits"
# What goes wrong, in which algorithms, and what the proof says of it.
_MUTANTS = (
    (DropsAnAddend, ("xring", "rechd", "ps", "xring/rechd", "pscpu/xring"),
     _LEFT_OUT),
    (AddsOneTwice, ("xring", "rechd", "ps", "xring/rechd", "pscpu/xring"),
     r"elements \d+ to \d+ of replica \d+ are added twice"),
    (DropsATransfer, ("xring", "ps", "hierarchical_copy", "pscpu/xring"),
     f"{_TOO_FEW}|{_MISPLACED}"),
    (SwapsJoinedParts, ("xring", "rechd", "xring/rechd", "pscpu/xring"),
     _MISPLACED),
    (SwapsCutParts, ("xring", "rechd", "xring/rechd", "pscpu/xring"),
     _MISADDED),
    (ForgetsAPart, ("xring", "rechd", "xring/rechd", "pscpu/xring"),
     f"{_TOO_FEW}|{_MISPLACED}"),
)


class MutationTest(parameterized.TestCase):
  """One wrong move anywhere, and there is no proof."""

  def assert_all_refuted(self, algorithm, tamper, message):
    topology, length = workers_of(2, 2), 24
    counting = tamper()
    proof.prove(tampered_with(algorithm, counting), topology, length)
    self.assertGreater(counting.chances, 0)
    for at in range(counting.chances):
      with self.assertRaisesRegex(errors.ProofError, message, msg=f"at {at}"):
        proof.prove(tampered_with(algorithm, tamper(at)), topology, length)

  @parameterized.parameters(*(
      (tamper, name, message)
      for tamper, names, message in _MUTANTS for name in names))
  def test_one_wrong_verb(self, tamper, name, message):
    self.assert_all_refuted(registry.lookup(name), tamper, message)

  def test_another_order_on_one_device(self):
    algorithm = registry.Algorithm("everyone", "All to all.", everyone)
    self.assert_all_refuted(algorithm, AddsInAnotherOrder, _ANOTHER_ORDER)

  @parameterized.parameters(
      (lambda results: results[::-1], "must leave one result on each of"),
      (lambda results: results[:-1], "must leave one result on each of"),
      (lambda results: [*results, results[0]],
       "must leave one result on each of"),
      (lambda results: [results[0]] * len(results),
       "must leave one result on each of"))
  def test_results_in_the_wrong_places(self, mislay, message):
    def all_reduce(fabric, values, group):
      return mislay(registry.lookup("xring").all_reduce(
          fabric, values, group))
    with self.assertRaisesRegex(errors.ProofError, message):
      proof.prove(registry.Algorithm("mislays", "", all_reduce),
                  workers_of(4), 24)

  def test_doing_nothing(self):
    idle = registry.Algorithm("idle", "", lambda fabric, values, group: values)
    with self.assertRaisesRegex(errors.ProofError, f"^idle {_LEFT_OUT}"):
      proof.prove(idle, workers_of(2), 24)

  def test_adding_values_of_different_lengths(self):
    def all_reduce(fabric, values, group):
      part = fabric.split(values[0], 2)[0]
      return [fabric.add([part, values[1]], place) for place in group.places]
    with self.assertRaisesRegex(errors.ProofError,
                                r"values of \[12, 24\] elements are added"):
      proof.prove(registry.Algorithm("uneven", "", all_reduce), workers_of(2),
                  24)


if __name__ == "__main__":
  absltest.main()
