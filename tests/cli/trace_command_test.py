"""Tests of `python -m tf_cdops trace`, and of --trace of other commands."""

import json
import pathlib

from absl.testing import absltest
from tests import python_process
from tests import timeline_format


def run(*args: str):
  return python_process.run("-m", "tf_cdops", *args, extras=("sklearn",))


class TraceTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)

  def content(self, name="trace.json"):
    return json.loads((self.folder / name).read_text(encoding="utf-8"))

  def lanes(self, content):
    return {event["args"]["name"] for event in content["traceEvents"]
            if event["name"] in ("thread_name", "process_name")}

  def test_one_process(self):
    outcome = run("trace", "--devices=2", "--steps=2", "--all_reduce_spec=ps",
                  f"--out={self.folder / 'trace.json'}",
                  f"--html={self.folder / 'page.html'}", "--json")
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    found = json.loads(outcome.stdout)
    self.assertEqual((found["steps"], len(found["buckets"])), (2, 8))
    self.assertEqual(sum(one["bytes"] for one in found["buckets"]), 172_200)
    content = self.content()
    timeline_format.check(self, content)
    self.assertContainsSubset({"CPU:0, replica 0", "CPU:1, replica 1",
                               "bucket 7", "step"}, self.lanes(content))
    self.assertIn("<svg", (self.folder / "page.html").read_text("utf-8"))

  def test_workers(self):
    outcome = run("trace", "--workers=2", "--devices=1",
                  "--all_reduce_spec=xring",
                  f"--out={self.folder / 'trace.json'}")
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    self.assertNotIn("Starting to trace", outcome.stdout)
    for words in ("worker 0 CPU:0", "worker 1 CPU:0", "worker 0 → worker 1",
                  "worker 1's clock was", "known to within"):
      self.assertIn(words, outcome.stdout)
    content = self.content()
    timeline_format.check(self, content)
    self.assertContainsSubset(
        {"worker 0", "worker 1", "CPU:0, replica 1", "worker 1 → worker 0"},
        self.lanes(content))

  def test_launched_programs(self):
    program = python_process.ROOT / "examples" / "keras_spmd.py"
    outcome = run("launch", "--workers=2",
                  f"--trace={self.folder / 'trace.json'}", str(program))
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    content = self.content()
    timeline_format.check(self, content)
    self.assertContainsSubset(
        {"worker 0", "worker 1", "CPU:0, replica 0", "CPU:0, replica 1",
         "worker 0 → the others", "worker 1 → the others"},
        self.lanes(content))
    self.assertIn("worker 1's clock was", content["otherData"]["clocks"])

  def test_launched_programs_that_have_no_timeline(self):
    program = self.folder / "program.py"
    program.write_text("print('hello')\n")
    outcome = run("launch", "--workers=1",
                  f"--trace={self.folder / 'trace.json'}", str(program))
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    self.assertEqual(outcome.stderr.count("wasn't written"), 1)

  def test_bench(self):
    outcome = run("bench", "--devices=2", "--sizes=3x1k,1x64k", "--specs=xring",
                  "--notensorflow", "--steps=2",
                  f"--trace={self.folder / 'trace.json'}")
    self.assertEqual(outcome.returncode, 0, outcome.stderr)
    self.assertIn("has a timeline of xring", outcome.stdout)
    timeline_format.check(self, self.content())

  def test_wrong_flags(self):
    wrong = {
        ("trace", "--steps=0"): r"`--steps` \(0\) must be from 1",
        ("trace", "--devices=0"): r"`--devices` \(0\) must be",
        ("trace", "--out=/no/such/x.json"): "`--out` .* make /no/such first",
        ("trace", "--html=/"): "`--html` .* not a folder",
        ("trace", "--all_reduce_spec=xrin"): "Did you mean 'xring'",
        ("bench", "--trace=/no/such/x.json"): "`--trace` .* make /no/such",
        ("bench", "--trace=x.json", "--eager"): "leave out --eager",
        ("launch", "--workers=1", "--trace=/", "x.py"): "not a folder"}
    outcomes = python_process.run_commands([list(args) for args in wrong])
    for (args, message), outcome in zip(wrong.items(), outcomes, strict=True):
      with self.subTest(args):
        self.assertEqual(outcome.returncode, 2, outcome.stdout)
        self.assertRegex(outcome.stderr, message)
        self.assertFalse(outcome.loaded_tensorflow)


if __name__ == "__main__":
  absltest.main()
