"""Holds docs/several_machines.md to what the algorithms do."""

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


class NetworkTableTest(absltest.TestCase):

  def test_the_page_has_the_table(self):
    page = python_process.ROOT / "docs" / "several_machines.md"
    self.assertIn(table(), page.read_text(encoding="utf-8"))


if __name__ == "__main__":
  absltest.main()
