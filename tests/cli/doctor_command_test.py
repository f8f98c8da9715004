"""Tests of `python -m tf_cdops doctor`, as a user runs it."""

import json
import os
import socket
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from tests import algorithm_plugin
from tests import python_process

import tensorflow as tf

import tf_cdops
from tf_cdops import cost
from tf_cdops.cli import tf_config

_TF_CONFIG = """{"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]},
                 "task": {"type": "worker", "index": 1}}"""


def doctor(*args: str, first_on_path: tuple[str, ...] = ()):
  return python_process.run("-m", "tf_cdops", "doctor", *args,
                            first_on_path=first_on_path)


class DoctorTest(parameterized.TestCase):

  def test_healthy(self):
    with mock.patch.dict(os.environ, TF_CONFIG=_TF_CONFIG):
      outcome = doctor("--devices=3", "--device_type=cpu")
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertEndsWith(outcome.stdout, "All that should work here works.\n")
    self.assertIn("all-reduce among 3 CPU devices", outcome.stdout)
    cells = {row[0]: row[1:] for row in (
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in outcome.stdout.splitlines() if line.startswith("│"))}
    self.assertEqual(cells["tf_cdops"], [tf_cdops.__version__])
    self.assertStartsWith(cells["TensorFlow"][0], f"{tf.__version__}, ")
    self.assertEqual(cells["logical devices"][0].split(",")[0], "3 CPU")
    self.assertEqual(cells["collective ops"], ["works"])
    self.assertEqual(cells["TF_CONFIG"], [
        "well-formed: chief at a:1; worker at b:2, c:3; this is "
        "/job:worker/task:1 at c:3 (not asked whether they answer)"])
    for name in ("xring", "rechd", "ps", "pscpu", "collective"):
      self.assertEqual(cells[name][0], "works")
      self.assertRegex(cells[name][1], r"^exact, within \d+\.\d s$")
    self.assertEqual(cells["psgpu"], [
        "can't", "psgpu needs GPU devices only; use 'ps', 'xring' or 'rechd', "
        "which run on any device"])
    # What Keras' own does is for the version that is here to say.
    bad = "a gradient that isn't finite, on one replica"
    for name, use in ((bad, "SkipNonFinite"),
                      ("gradient_accumulation_steps", "GradientAccumulation"),
                      ("a first batch that replicas can't divide evenly",
                       "accept_uneven_batches")):
      self.assertEqual(cells[name][1:], ["works", use])
    self.assertEqual(cells[bad][0], "every weight is lost, without a word")
    self.assertEqual(cells["fit trains on all replicas' gradients"],
                     ["works", "-", "not needed"])

  def test_faults_are_found_and_outlived(self):
    plugin = algorithm_plugin.install(self.create_tempdir().full_path)
    outcome = doctor("--json", "--devices=2", "--device_type=CPU",
                     "--limit=8", first_on_path=(plugin,))
    self.assertEqual((outcome.returncode, outcome.stderr), (1, ""))
    content = json.loads(outcome.stdout)
    self.assertFalse(content["ok"])
    self.assertEqual(content["facts"]["rows"]["TF_CONFIG"], "not set")
    trials = {trial["name"]: (trial["outcome"], trial["detail"])
              for trial in content["trials"]}
    self.assertCountEqual(trials, [t["name"] for t in content["trials"]])
    self.assertEqual(trials["hangs"], ("HUNG", "no end after 8 s"))
    self.assertEqual(trials["crashes"],
                     ("FAILED", "the process ended with code 77; it said: "
                      "nothing"))
    self.assertEqual(trials["raises"], ("FAILED", "RuntimeError: some reason"))
    # Two devices with 1001 elements and one, none of them a sum.
    self.assertEqual(trials["sums_nothing"],
                     ("WRONG", "2004 elements aren't the exact sum; don't use "
                      "it here, and report it"))
    for name in ("collective", "ps", "rechd", "xring"):
      self.assertEqual(trials[name][0], "works", trials[name])

  def test_a_malformed_tf_config_is_a_fault(self):
    with mock.patch.dict(os.environ, TF_CONFIG='{"cluster": '):
      outcome = doctor("--devices=2", "--device_type=CPU", "--json")
    self.assertEqual((outcome.returncode, outcome.stderr), (1, ""))
    content = json.loads(outcome.stdout)
    self.assertFalse(content["ok"])
    found = content["facts"]["tf_config"]
    self.assertEqual((found["is_set"], found["ok"], found["cluster"]),
                     (True, False, None))
    self.assertRegex(found["detail"],
                     "^MALFORMED: `TF_CONFIG` .* isn't right JSON: Expecting")
    self.assertEqual(content["facts"]["rows"]["TF_CONFIG"], found["detail"])
    self.assertEqual({trial["outcome"] for trial in content["trials"]},
                     {"works", "can't"})

  def test_tensorflow_that_does_not_start(self):
    # Stands for a build that this processor can't run, for one.
    folder = self.create_tempdir()
    folder.create_file("tensorflow/__init__.py", "import os\nos.abort()\n")
    folder.create_file(
        f"tensorflow-{tf.__version__}.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: tensorflow\n"
        f"Version: {tf.__version__}\n")
    outcome = doctor(first_on_path=(folder.full_path,))
    self.assertEqual((outcome.returncode, outcome.stderr), (1, ""))
    self.assertRegex(outcome.stdout,
                     r"TensorFlow +│ FAILED +│ the process ended with code -6")

  @parameterized.parameters(
      (["--devices=65"], r"`--devices` \(65\) must be from 1 to 64"),
      (["--limit=0"], r"`--limit` \(0\) must be above 0 and at most 3600"),
      (["--limit=nan"], r"`--limit` \(nan\) must be above 0"),
      (["--out=x"], r"`--out` \('x'\) must come with --cluster or --workers"),
      # What only TensorFlow knows comes from the other process.
      (["--device_type=GPU", "--devices=64"],
       r"`--device_type` \(GPU\) needs 64 of them, and TensorFlow finds \d+"))
  def test_bad_input(self, args, message):
    outcome = doctor(*args)
    self.assertEqual((outcome.returncode, outcome.stdout), (2, ""))
    self.assertRegex(outcome.stderr, rf"^tf_cdops doctor: {message}.*\n$")


class ClusterTest(absltest.TestCase):

  def test_links_of_a_cluster_that_runs(self):
    out = os.path.join(self.create_tempdir().full_path, "links.json")
    with tf_cdops.LocalCluster(2, 2) as cluster:
      config = json.dumps({"cluster": cluster.as_dict(),
                           "task": {"type": "worker", "index": 0}})
      with mock.patch.dict(os.environ, TF_CONFIG=config):
        outcome = doctor("--cluster=TF_CONFIG", f"--out={out}")
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertIn("all-reduce among 4 CPU devices of 2 workers",
                  outcome.stdout)
    self.assertRegex(outcome.stdout, r"┃ from +┃ +to worker 0 ┃ +to worker 1 ")
    for worker in range(2):
      self.assertRegex(outcome.stdout,
                       rf"│ worker {worker} │ +\d+ / \d+ │ +\d+ / \d+ │")
    network = cost.network_from_file(out)
    self.assertEqual((network.inside.name, network.across.name),
                     ("measured inside", "measured across"))

  def test_a_worker_that_does_not_answer(self):
    with socket.socket() as taken:  # And nobody listens.
      taken.bind(("127.0.0.1", 0))
      address = f"127.0.0.1:{taken.getsockname()[1]}"
      outcome = doctor(f"--cluster={address}")
    self.assertEqual((outcome.returncode, outcome.stdout), (1, ""))
    self.assertRegex(
        outcome.stderr, r"^tf_cdops doctor: `cluster` must have workers that "
        rf"answer within 10 s: /job:worker/task:0 at {address} can't be "
        r"reached \(Connection refused\)\. Start them with .*\n$")


class TfConfigTest(parameterized.TestCase):

  def test_well_formed(self):
    found = tf_config.examine({"TF_CONFIG": _TF_CONFIG})
    self.assertTrue(found.is_set and found.ok)
    self.assertEqual(found.cluster,
                     {"chief": ["a:1"], "worker": ["b:2", "c:3"]})
    self.assertEqual(found.task, "/job:worker/replica:0/task:1")

  def test_a_client(self):
    found = tf_config.examine({"TF_CONFIG": _TF_CONFIG.replace(
        '"type": "worker"', '"type": "client"')})
    self.assertTrue(found.ok)
    self.assertIsNone(found.task)
    self.assertIn("this is none of its tasks, but a client", found.detail)

  @parameterized.parameters({}, {"TF_CONFIG": ""})
  def test_not_set(self, **environment):
    self.assertEqual(tf_config.examine(environment),
                     tf_config.TfConfig(False, True, "not set"))

  @parameterized.parameters(
      ("a:1,b:2", "isn't right JSON"),
      ('{"cluster": {"worker": ["a"]}}', r"`address` \('a'\) must be host:"),
      ('{"cluster": {"ps": ["a:1"]}}', "must have a job 'worker'"),
      ('{"cluster": {"worker": ["a:1"]}, "task": 3}', "has the task 3, which "),
      (_TF_CONFIG.replace('"index": 1', '"index": 7'),
       r"has the task \{'type': 'worker', 'index': 7\}, which must be one of "
       "the cluster's: /job:chief/task:0 at a:1, .*; mend its index"))
  def test_malformed(self, text, reason):
    found = tf_config.examine({"TF_CONFIG": text})
    self.assertEqual((found.is_set, found.ok), (True, False))
    self.assertRegex(found.detail, f"^MALFORMED: .*{reason}")


if __name__ == "__main__":
  absltest.main()
