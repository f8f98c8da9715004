"""Holds docs/several_machines.md to what the algorithms do."""

import re

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process

import tf_cdops
from tf_cdops import registry
from tf_cdops.registry import proof

_PAGE = (python_process.ROOT / "docs" / "several_machines.md").read_text(
    encoding="utf-8")
_MINUS = "\N{MINUS SIGN}"
_ITEMSIZE = 4
_SIZES = ((2, 1), (2, 2), (2, 4), (3, 2), (4, 2), (5, 3), (8, 2))


def table() -> dict[str, tuple[str, str]]:
  """Returns, for each spec of the page's table, its two formulas."""
  rows = {}
  for line in _PAGE.partition("| spec | bytes")[2].splitlines()[2:]:
    if not line.startswith("|"):
      break
    specs, sent, chain = (cell.strip() for cell in line.strip("|").split("|"))
    for spec in re.findall(r"`([^`]+)`", specs):
      rows[spec] = re.split("[,:]", sent)[0], chain
  return rows


def value_of(formula: str, **names: int) -> float:
  """Evaluates a formula as people write them, such as 2Wn or ⌊lg W⌋."""
  # Halving-doubling takes two steps more unless W is a power of two.
  power_of_two = names["W"] & (names["W"] - 1) == 0
  python = formula.replace("(+2)", "" if power_of_two else "+ 2")
  python = re.sub("⌊lg ([A-Z])⌋", r"(\1.bit_length()-1)", python)
  python = python.replace(_MINUS, "-")
  while python != (python := re.sub(r"([\dWGn)])(?=[WGn(])", r"\1*", python)):
    pass
  return eval(python, {"__builtins__": {}}, names)


class NetworkTableTest(parameterized.TestCase):

  def test_formulas_are_read_as_people_do(self):
    self.assertEqual(value_of(f"2(W{_MINUS}1)Gn", W=3, G=2, n=10), 80)
    self.assertEqual(value_of("2 + 2⌊lg W⌋ (+2)", W=5, G=1, n=1), 8)
    self.assertEqual(value_of("2 + 2⌊lg W⌋ (+2)", W=8, G=1, n=1), 8)
    self.assertEqual(value_of(f"2Wn(WG{_MINUS}1)/(WG)", W=2, G=2, n=8), 24)

  def test_the_page_has_the_table(self):
    self.assertContainsSubset(
        ["ps/ps", "auto", "xring/xring", "pscpu/pscpu", "ps/rechd", "ps",
         "pscpu", "xring"], table())

  @parameterized.parameters(sorted(set(table()) - {"auto"}))
  def test_the_table_is_what_the_trace_counts(self, spec):
    sent, chain = table()[spec]
    for workers, devices in _SIZES:
      with self.subTest(workers=workers, devices=devices):
        topology = tf_cdops.Topology.grid(workers, devices)
        elements = workers * devices * 3
        trace = proof.prove(registry.lookup(spec), topology, elements)
        names = {"W": workers, "G": devices, "n": elements * _ITEMSIZE}
        between = sum(_ITEMSIZE * count
                      for (source, target), count in trace.links().items()
                      if worker(source) != worker(target))
        self.assertEqual(between, value_of(sent, **names))
        self.assertLessEqual(trace.steps, value_of(chain, **names))
        if devices > 1:  # A worker's only device need tell nobody.
          self.assertEqual(trace.steps, value_of(chain, **names))


def worker(device: str) -> str:
  return device.partition("/device")[0]


if __name__ == "__main__":
  absltest.main()
