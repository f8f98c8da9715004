"""Tests of `tf_cdops algorithms`, and of the table in README.md."""

import json
import re

from absl.testing import absltest
from tests import all_reduce_contract
from tests import python_process
from tests import registrations

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
    # Of a ring: 2(p-1) steps, and 2(p-1)/p times the tensor from each device.
    self.assertRegex(done.stdout, r"│ xring .*│ 2, 14, 126 +│ 1, 1.75, 1.97 ")
    for line in done.stdout.splitlines():
      self.assertLessEqual(len(line), 100)
      self.assertEqual(line, line.rstrip())

  def test_json(self):
    listed = json.loads(run("--json").stdout)["algorithms"]
    self.assertEqual([row["name"] for row in listed],
                     [known.name for known in registry.all_reduce_algorithms()])
    nccl, = (row for row in listed if row["name"] == "nccl")
    self.assertEqual(nccl["needs"], "GPU devices, one worker, the "
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
    # One that is new needn't be in it.
    self.assertContainsSubset(shown[1].strip().splitlines(),
                              run("--markdown").stdout.splitlines())

  def test_the_table_is_what_traces_count(self):
    for known in registry.all_reduce_algorithms():
      if known.modelled:
        continue
      _, _, steps, sends, _ = algorithms._row(known)
      trace = proof.prove(known, all_reduce_contract.workers_of(8), 840)
      self.assertEqual(int(steps.split(", ")[1]), trace.steps, known.name)
      self.assertEqual(float(sends.split(", ")[1]), trace.busiest / 840,
                       known.name)

  def test_own_algorithms(self):
    def star(fabric, values, group):
      total = fabric.add(values, group.places[0])
      return [fabric.copy(total, place) for place in group.places]

    with registrations.undone():
      registry.register_all_reduce("star", description="A | star.")(star)
      registry.register_all_reduce("wrong", description="Wrong.")(
          lambda fabric, values, group: list(values))
      table = algorithms.markdown()
    self.assertIn("| `star` | A \\| star. | 2, 2, 2 | 1, 7, 63 |",
                  table)
    self.assertIn("| `wrong` | Wrong. | — | — |", table)


if __name__ == "__main__":
  absltest.main()
