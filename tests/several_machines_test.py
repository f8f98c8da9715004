"""Holds docs/several_machines.md to what the algorithms do."""

import re

from absl.testing import absltest
from tests import python_process

import tf_cdops
from tf_cdops import registry
from tf_cdops.cost import usage
from tf_cdops.explaining import text_table

_SPECS = ("ps/ps", "pscpu/pscpu", "ps/rechd", "xring/xring", "ps", "xring")
_SIZES = ((2, 4), (4, 4), (16, 4))
_LENGTH = 6720  # Cut evenly by any of them.


def table() -> str:
  """Returns the page's table, as the formulas of the algorithms have it."""
  columns = ["spec", *(f">{workers} x {devices}" for workers, devices
                       in _SIZES), ">steps on each"]
  rows = []
  for spec in _SPECS:
    used = [usage.count(registry.lookup(spec), tf_cdops.Topology.grid(*size),
                        _LENGTH) for size in _SIZES]
    rows.append([f"`{spec}`", *(f"{one.across / _LENGTH:.3g}n" for one in used),
                 ", ".join(str(one.steps) for one in used)])
  return text_table.markdown(columns, rows)


class PageTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.page = (python_process.ROOT / "docs" / "several_machines.md"
                 ).read_text(encoding="utf-8")

  def test_has_the_table(self):
    self.assertIn(table(), self.page)

  def test_first_example_ends_quietly(self):
    # TensorFlow told of each function that it couldn't be removed from workers
    # that had ended.
    first, = re.findall("```python\n(.*?)```", self.page, re.DOTALL)
    outcome = python_process.run("-c", first)
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    self.assertNotRegex(outcome.stderr, "(?m)^E0000|Failed to|Traceback")


if __name__ == "__main__":
  absltest.main()
