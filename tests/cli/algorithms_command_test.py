"""Tests of `tf_cdops algorithms`, and of the table in README.md."""

import json
import re
import unittest.mock

from absl.testing import absltest
from tests import all_reduce_contract
from tests import python_process

from tf_cdops import registry
from tf_cdops.cli import algorithms
from tf_cdops.registry import proof


def run(*args: str):
  return python_process.run("-m", "tf_cdops", "algorithms", *args)


class AlgorithmsTest(absltest.TestCase):

  def test_table(self):
    done = run()
    self.assertEqual((done.returncode, done.stderr), (0, ""))
    for known in registry.all_reduce_algorithms():
      self.assertRegex(done.stdout, rf"│ {known.name} +│ "
                       rf"{re.escape(known.description[:8])}")
    self.assertRegex(done.stdout, r"│ xring .*│ 2\(p-1\) +│ 2n\(p-1\)/p ")
    for line in done.stdout.splitlines():
      self.assertLessEqual(len(line), 100)
      self.assertEqual(line, line.rstrip())

  def test_json(self):
    listed = json.loads(run("--json").stdout)["algorithms"]
    self.assertEqual([row["name"] for row in listed],
                     [known.name for known in registry.all_reduce_algorithms()])
    self.assertEqual(listed[2]["needs"], "GPU devices, one worker, the "
                     "NcclAllReduce kernel, no virtual GPUs")

  def test_loads_no_tensorflow(self):
    done = python_process.run("-c", (
        "import sys\n"
        "from tf_cdops.cli import main\n"
        "assert main.main(['algorithms', '--markdown']) == 0\n"
        "assert 'tensorflow' not in sys.modules"))
    self.assertEqual(done.returncode, 0, done.stderr)

  def test_readme_has_the_table(self):
    text = (python_process.ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"(?s)<!-- algorithms -->\n(.*?)<!-- /algorithms -->",
                      text)
    self.assertIsNotNone(
        shown, "README.md must have the output of `tf_cdops algorithms "
        "--markdown` between <!-- algorithms --> and <!-- /algorithms -->.")
    self.assertEqual(shown[1].strip(), run("--markdown").stdout.strip())

  def test_formulas_for_eight_devices(self):
    """The texts are what traces count, where they give one number."""
    values = {"2(p-1)": 14, "2n(p-1)/p": 14 / 8, "2": 2, "2⌊lg p⌋": 6}
    topology = all_reduce_contract.workers_of(8)
    for known in registry.all_reduce_algorithms():
      if known.modelled:
        continue
      counted = proof.prove(known, topology, 840).cost
      self.assertEqual(values[known.steps_formula.split(";")[0]],
                       counted.steps, known.name)
      sends = known.bytes_formula.split(";")[0]
      if sends in values:
        self.assertEqual(values[sends] * 840, counted.busiest, known.name)

  def test_own_algorithms(self):
    def star(fabric, values, group):
      total = fabric.add(values, group.places[0])
      return [fabric.copy(total, place) for place in group.places]

    with unittest.mock.patch.dict(registry._algorithms):
      registry.register_all_reduce("star", description="A | star.")(star)
      registry.register_all_reduce("wrong", description="Wrong.")(
          lambda fabric, values, group: list(values))
      table = algorithms.markdown()
    self.assertIn("| `star` | A \\| star. | 2 if p = 8 | up to 7n if p = 8 |",
                  table)
    self.assertIn("| `wrong` | Wrong. | — | — |", table)


if __name__ == "__main__":
  absltest.main()
