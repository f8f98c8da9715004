"""Tests of `python -m tf_cdops tune`, as a user runs it."""

import dataclasses
import json
import os
import pathlib
from unittest import mock

from absl import flags
from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process
from tests import registrations
from tests import virtual_devices

import tf_cdops
from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import topology
from tf_cdops.cli import loads
from tf_cdops.cli import output
from tf_cdops.cli import tune as tune_command
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import link_results
from tf_cdops.cli.measuring import links
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import races
from tf_cdops.cli.measuring import search
from tf_cdops.cli.measuring import timing
from tf_cdops.cli.measuring import tuner
from tf_cdops.cli.measuring import tuning
from tf_cdops.cost import given
from tf_cdops.execution import executor
from tf_cdops.planning import planner
from tf_cdops.planning import spec_file

_LEAST = "must be a time such as 90, 90s or 2m, of at least 5s"
# What is measured is told as text, and again as JSON.
_MEASURED_ONCE = """\
import functools
from tf_cdops.cli import tune
tune._tune = functools.cache(tune._tune)
"""


class InterruptedTest(absltest.TestCase):

  def test_keeps_what_there_is(self):
    def interrupt(candidate):
      raise KeyboardInterrupt

    outcome = tuner.tune(sites.Site(tuple(virtual_devices.names(2))),
                         loads.parse_sizes("4x1k").sizes, 5, interrupt)
    self.assertTrue(outcome.interrupted)
    self.assertEqual((outcome.advice, outcome.found), (tuner.AUTO, {}))
    self.assertRegex(tune_command._advice(outcome, "x.json")[0],
                     "^Interrupted: nothing was run against auto, and no file")


class TuneTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.out = os.path.join(self.create_tempdir().full_path, "tuned.json")

  def read(self):
    return json.loads(pathlib.Path(self.out).read_text())

  def test_writes_what_the_flags_read(self):
    told = ["tune", "--devices=3", "--sizes=6x1k,2x1m", "--budget=5s"]
    text, as_json = python_process.run_commands(
        [[*told, f"--out={self.out}"],
         [*told, f"--out={self.out}.again", "--json"]], before=_MEASURED_ONCE)
    for outcome in (text, as_json):
      self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertIn("6x1k,2x1m on 3 CPU devices", text.stdout)
    content = self.read()
    self.assertEqual(json.loads(as_json.stdout), content)
    self.assertEqual((content["version"], content["tf_cdops"]),
                     (spec_file.FILE_VERSION, tf_cdops.__version__))
    self.assertLen(content["devices"], 3)
    values = flags.FlagValues()
    tf_cdops.flags.define_flags(values)
    values(["train.py", f"--all_reduce_spec=@{self.out}"])
    self.assertEqual(str(values.all_reduce_spec), content["all_reduce_spec"])
    self.check_measurements(content)
    self.check_advice(content, text.stdout)
    self.check_plan(content)

  def check_measurements(self, content):
    tried = {(m["up_to_bytes"], m["algorithm"], m["pack"])
             for m in content["measurements"]}
    self.assertContainsSubset({(4096, "ps", False), (1 << 20, "ps", False)},
                              tried)
    self.assertNotIn("nccl", [m["algorithm"] for m in content["measurements"]])
    for measurement in content["measurements"]:
      self.assertGreater(measurement["seconds"], 0)

  def check_advice(self, content, said):
    """Whatever the times were, advice, file and verdict go together."""
    race = content["race"]
    if race is None or not race["verdict"]["better"]:
      self.assertEqual(content["all_reduce_spec"], "auto")
      self.assertEqual((content["num_packs"],
                        content["agg_small_grads_max_bytes"]), (0, 0))
      self.assertRegex(said, "(No difference|Nothing beats it): keep auto")
    else:
      self.assertLess(race["verdict"]["high"], 1)
      self.assertEqual(content["all_reduce_spec"],
                       content["composed"]["all_reduce_spec"])
      self.assertIn(f"Best: {content['all_reduce_spec']}\n", said)
      self.assertIn(f"--all_reduce_spec=@{self.out}", said)

  def check_plan(self, content):
    """Whatever won: as those who are given the file plan, and as measured."""
    arguments = {name: content[name] for name in planner.Packing().arguments()}
    self.assertEqual(
        repr(tf_cdops.MultiWorkerAllReduce(all_reduce_spec=f"@{self.out}")),
        repr(tf_cdops.MultiWorkerAllReduce(
            all_reduce_spec=content["all_reduce_spec"], **arguments)))
    race = content["race"]
    if race and race["verdict"]["better"]:
      self.assertEqual(arguments.items() - content["composed"].items(), set())

  def test_a_cluster_that_runs(self):
    with tf_cdops.LocalCluster(2, 1) as cluster:
      outcome = python_process.run(
          "-m", "tf_cdops", "tune", "--sizes=4x1k,1m", "--budget=5s",
          f"--cluster={','.join(cluster.as_dict()['worker'])}",
          f"--out={self.out}")
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    content = self.read()
    self.check_advice(content, outcome.stdout)
    self.assertRegex(outcome.stdout, r"\nMedians across workers: \d+ µs, ")
    # One device a worker has no links inside it.
    self.assertIsNone(content["links"]["inside"])
    parsed = tf_cdops.parse_all_reduce_spec(f"@{self.out}")
    self.assertEqual(parsed.network.summary(), content["links"])
    self.assertEqual(parsed.network.across.name, "measured across")
    if parsed.is_auto:
      self.assertIn("Here auto chose by the links that were measured. The file "
                    f"has them: --all_reduce_spec=@{self.out}\n",
                    outcome.stdout)
    e = tf_cdops.explain(parsed, topology.Topology.grid(
        2, 1, device_type="CPU"), [1024] * 4 + [1 << 20])
    self.assertEqual(e.network.across, parsed.network.across)

  def test_bad_input(self):
    cases = [
        (["--budget=4s"], rf"`--budget` \('4s'\) {_LEAST}"),
        (["--budget=0.05m"], rf"`--budget` \('0.05m'\) {_LEAST}"),
        (["--budget=fast"], rf"`--budget` \('fast'\) {_LEAST}"),
        (["--budget=-60s"], rf"`--budget` \('-60s'\) {_LEAST}"),
        (["--budget="], rf"`--budget` \(''\) {_LEAST}"),
        (["--devices=65"], r"`--devices` \(65\) must be from 1 to 64"),
        (["--out=/no/such/folder/x"],
         r"`--out` \('/no/such/folder/x'\) must be in a folder that is there"),
    ]
    outcomes = python_process.run_commands(
        [["tune", *args] for args, _ in cases])
    for (args, message), outcome in zip(cases, outcomes, strict=True):
      with self.subTest(args=args):
        self.assertEqual((outcome.returncode, outcome.stdout), (2, ""))
        self.assertRegex(outcome.stderr, rf"^tf_cdops tune: {message}.*\n$")

  def test_one_device_has_nothing_to_tune(self):
    outcome = python_process.run("-m", "tf_cdops", "tune", "--devices=1",
                                 f"--out={self.out}")
    self.assertEqual((outcome.returncode, outcome.stdout), (2, ""))
    self.assertRegex(outcome.stderr, r"`--devices` \(1\) must be at least 2")
    self.assertFalse(os.path.exists(self.out))


_LINKS = given.MeasuredLinks(
    None, cost.Link("measured across", 1e-4, 1e9, 5e-5))


def outcome_of(ratio: float, pairs: int = 20, wrong: int = 0):
  """Returns what tuning comes to if the composed spec takes so much time."""
  verdict = tuning.judge([1.0] * pairs, [ratio] * pairs)
  race = races.Race(verdict, timing.Summary.from_samples([1.0]),
                    timing.Summary.from_samples([ratio]), wrong)
  composed = tuning.Setting(tf_cdops.parse_all_reduce_spec("xring:4k:ps#2"),
                           planner.Packing(small_max_bytes=4096,
                                           small_max_group=7))
  return tuner.Outcome(composed, {}, 0, race)


class AdviceTest(parameterized.TestCase):

  def advice(self, outcome):
    return "\n".join(tune_command._advice(outcome, "tuned.json"))

  def test_better(self):
    outcome = outcome_of(0.5)
    self.assertIs(outcome.advice, outcome.composed)
    self.assertEqual(
        self.advice(outcome),
        "Best: xring:4k:ps#2\n"
        "--all_reduce_spec=xring:4k:ps#2 --agg_small_grads_max_bytes=4096 "
        "--agg_small_grads_max_group=7 takes 0.50 times auto's time (surely "
        "0.50 to 0.50; 20 pairs of steps, medians 500.00 and 1000.00 ms).\n"
        "Apply it with: --all_reduce_spec=@tuned.json")

  @parameterized.parameters(
      ({"ratio": 0.97}, "^No difference: keep auto"),
      ({"ratio": 1.0}, "^No difference: keep auto"),
      ({"ratio": 1.3}, "^Nothing beats it: keep auto"),
      ({"ratio": 0.5, "pairs": 5}, "(?s)^No difference: keep auto.*too few to "
       "be sure: give a larger --budget; 5 pairs"),
      ({"ratio": 0.5, "wrong": 1234}, "^1,234 elements of .* are WRONG"))
  def test_not_better(self, race, message):
    outcome = outcome_of(**race)
    self.assertIs(outcome.advice, tuner.AUTO)
    self.assertRegex(self.advice(outcome), message)

  def test_same_as_auto(self):
    outcome = tuner.Outcome(outcome_of(1.0).composed, {}, 0, None)
    self.assertIs(outcome.advice, tuner.AUTO)
    self.assertStartsWith(self.advice(outcome),
                          "No difference: keep auto, which does the same as "
                          "--all_reduce_spec=xring:4k:ps#2 --agg_small")

  @parameterized.parameters((0.5, False), (1.0, True))
  def test_says_that_auto_goes_by_the_links(self, ratio, said):
    outcome = dataclasses.replace(outcome_of(ratio), links=_LINKS)
    self.assertEqual(
        tune_command._advice_on_links(outcome, "tuned.json"),
        ["Here auto chose by the links that were measured. The file has them: "
         "--all_reduce_spec=@tuned.json"] * said)
    self.assertEmpty(tune_command._advice_on_links(outcome_of(1.0), "x"))

  def test_wires(self):
    outcome = dataclasses.replace(outcome_of(0.5), wires=tuple(
        races.WireTrial(registry.check_wire(name), race) for name, race in (
            ("bfloat16", outcome_of(0.6).race), ("int8", outcome_of(0.4).race),
            ("float16", None))))
    self.assertEqual((str(outcome.advice.spec), str(outcome.advice.wire)),
                     ("auto", "int8"))
    self.assertEqual(
        tune_command._advice_on_wires(outcome, "tuned.json"),
        ["The wire bfloat16 pays: 0.60 times the time without (surely 0.60 to "
         "0.60; 20 pairs).",
         "The wire int8 pays: 0.40 times the time without (surely 0.40 to "
         "0.40; 20 pairs).",
         "The wire float16 doesn't pay here: by these links auto would encode "
         "no message.",
         "Best: auto with --wire=int8. It is in the file: "
         "--all_reduce_spec=@tuned.json"])
    site = sites.Site(tuple(virtual_devices.names(2)))
    out = os.path.join(self.create_tempdir().full_path, "tuned.json")
    output.write_json(out, tune_command._content(
        site, loads.parse_sizes("7x1k"), outcome))
    self.assertIn("wire='int8'", repr(
        tf_cdops.MultiWorkerAllReduce(all_reduce_spec=f"@{out}")))

  @parameterized.parameters((0.97, 0, "doesn't pay here: 0.97 times"),
                            (0.5, 7, "is WRONG in 7 elements, please report"))
  def test_wires_that_do_not_pay(self, ratio, wrong, said):
    outcome = dataclasses.replace(outcome_of(0.5), wires=(races.WireTrial(
        registry.check_wire("bfloat16"),
        outcome_of(ratio, wrong=wrong).race),))
    self.assertIs(outcome.advice, outcome.composed)
    line, = tune_command._advice_on_wires(outcome, "tuned.json")
    self.assertIn(f"The wire bfloat16 {said}", line)

  @parameterized.parameters((0.5, "xring:4k:ps#2", 4096), (1.0, "auto", 0))
  def test_file(self, ratio, advised, packed):
    site = sites.Site(tuple(virtual_devices.names(2)))
    content = json.loads(json.dumps(tune_command._content(
        site, loads.parse_sizes("7x1k"), outcome_of(ratio)), allow_nan=False))
    self.assertEqual(content["all_reduce_spec"], advised)
    self.assertEqual(content["agg_small_grads_max_bytes"], packed)
    self.assertEqual(content["composed"]["all_reduce_spec"], "xring:4k:ps#2")


class PlanOfTheFileTest(parameterized.TestCase):
  """What is written and read back is run as it was when it was raced."""

  def plans_of(self, emit):
    """Returns the plans that are followed meanwhile, in order."""
    with mock.patch.object(executor, "all_reduce",
                           wraps=executor.all_reduce) as followed:
      emit()
    return [call.args[0] for call in followed.call_args_list]

  def contend(self, site, load, spec_text):
    inputs = exact_inputs.make(site, load.sizes)
    steps.build(contenders.of_spec(spec_text), inputs)

  @parameterized.parameters(True, False)
  def test_is_what_was_raced(self, better):
    site = sites.Site(tuple(virtual_devices.names(4)))
    load = loads.parse_sizes("20x1k,3x2m")
    composed = tuning.Setting(
        tf_cdops.parse_all_reduce_spec("xring:4k:ps#2"),
        planner.Packing(small_max_bytes=4096, small_max_group=23))
    verdict = tuning.Verdict(better, 0.5, 0.5, 0.5, 6)
    outcomes = []
    with (mock.patch.object(tuning, "compose", return_value=composed),
          mock.patch.object(tuning, "judge", return_value=verdict)):
      plans = self.plans_of(
          lambda: outcomes.append(tuner.tune(site, load.sizes, 1)))
    *_, auto, raced = plans
    self.assertEqual([len(b.tensors) for b in raced.buckets], [1, 1, 1, 20])
    out = os.path.join(self.create_tempdir().full_path, "tuned.json")
    output.write_json(out, tune_command._content(site, load, outcomes[0]))
    self.assertEqual(
        self.plans_of(lambda: self.contend(site, load, f"@{out}")),
        [raced if better else auto])

  def test_wires_are_raced(self):
    """Of one process's devices nothing is encoded, unless the scope is all."""
    site = sites.Site(tuple(virtual_devices.names(2)))
    sizes = loads.parse_sizes("2x64k").sizes
    wires = [registry.check_wire("bfloat16"), registry.check_wire("int8")]
    found = tuner._try_wires(
        tuner.Outcome(tuner.AUTO, {}, 0, None), wires,
        exact_inputs.make(site, sizes), None, 0)
    self.assertEqual(found, tuple(races.WireTrial(w, None) for w in wires))
    coded = tuning.Setting(tf_cdops.parse_all_reduce_spec("ps"),
                           planner.Packing(),
                           registry.check_wire("bfloat16", "all"))
    race = races.race(tuner.AUTO, coded, exact_inputs.make(site, sizes), None,
                      0)
    self.assertEqual((race.verdict.pairs, race.wrong), (6, 0))


class SearchTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.enter_context(registrations.undone())

    def broken(fabric, values, group):
      del fabric, values, group
      raise ValueError("as third parties may")

    tf_cdops.register_all_reduce("broken", description="Fails.")(broken)
    self.inputs = exact_inputs.make(
        sites.Site(tuple(virtual_devices.names(2))),
        loads.parse_sizes("1k").sizes)

  def test_leaves_out_what_fails(self):
    ways = [planner.Choice(name) for name in ("broken", "ps", "xring")]
    with self.assertLogs("absl", "WARNING") as logs:
      found = search.search(self.inputs, ways, 5, lambda _: None)
    self.assertCountEqual(found, ways[1:])
    self.assertRegex(logs.output[0], "broken can't run here, and is left out: "
                     "as third")

  def test_raises_if_all_fail(self):
    with (self.assertLogs("absl", "WARNING"),
          self.assertRaisesRegex(ValueError, "as third parties may")):
      search.search(self.inputs, [planner.Choice("broken")], 5, lambda _: None)


class LinksTest(parameterized.TestCase):

  @parameterized.parameters((5, 1), (60, 12), (3600, 12))
  def test_take_a_fifth_of_the_time_at_most(self, budget, seconds):
    names = ["/job:worker/replica:0/task:0/device:CPU:0",
             "/job:worker/replica:0/task:1/device:CPU:0"]
    measured = [link_results.LinkMeasurement(*names, 1e-4, 1e9, 5e-5)]
    with mock.patch.object(links, "measure", return_value=measured) as measure:
      site = sites.Site(tuple(names))
      self.assertEqual(tuner._measure_links(site, budget), _LINKS)
      measure.assert_called_once_with(site, seconds)

  def test_one_worker_has_none(self):
    site = sites.Site(tuple(virtual_devices.names(2)))
    self.assertIsNone(tuner._measure_links(site, 60))

  def test_those_of_a_file_go_before_what_is_known(self):
    path = self.create_tempfile(content=json.dumps(
        {"all_reduce_spec": "auto", "links": _LINKS.summary()})).full_path
    for spec, name in ((f"@{path}", "measured across"), ("auto", "10gbe")):
      contender = contenders.of_spec(spec, link=cost.PRESETS["10gbe"])
      self.assertIn(f"Link(name='{name}'", repr(contender.make_ops()))


_SIZES = [planner.TensorSize.from_shape((1 << 24,), "float32")]


class AlgorithmsTest(parameterized.TestCase):

  def test_one_worker(self):
    names = tuner.algorithms(topology.Topology.from_devices(
        virtual_devices.names(4)), _SIZES)
    self.assertEqual(names[:2], ["ps", "pscpu"])
    self.assertContainsSubset({"xring", "rechd", "collective"}, names)
    self.assertNoCommonElements(names, ["nccl", "psgpu", "ps/ps"])

  @parameterized.parameters((1, False), (2, True))
  def test_pairs_where_workers_have_several_devices(self, devices, pairs):
    names = tuner.algorithms(
        topology.Topology.grid(2, devices, device_type="CPU"), _SIZES)
    self.assertEqual("ps/ps" in names and "xring/rechd" in names, pairs)

  def test_the_least_predicted_time_first_between_workers(self):
    hosts = topology.Topology.grid(4, 1, device_type="CPU")
    slow = cost.Link("500mbit", 1e-4, 62.5e6, 1e-4)
    names = tuner.algorithms(hosts, _SIZES, slow)
    self.assertIn(names[0], ("collective", "xring"))
    self.assertLess(names.index("rechd"), names.index("ps"))


if __name__ == "__main__":
  absltest.main()
