"""Tests of the registry of all-reduce algorithms, and of plugins."""

import os
import pathlib
import pkgutil
import re
import textwrap

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process
from tests import registrations

import tf_cdops
from tf_cdops import algorithms
from tf_cdops import registry
from tf_cdops.base import errors

_OURS = [known.name for known in tf_cdops.all_reduce_algorithms()]


def identity(fabric, values, group):
  del fabric, group
  return values


class RegistryTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.enter_context(registrations.undone())

  def register(self, name, **kwargs):
    return tf_cdops.register_all_reduce(
        name, **{"description": "For a test.", **kwargs})(identity)

  def names(self):
    return [known.name for known in tf_cdops.all_reduce_algorithms()]

  def test_ours_are_there_by_name(self):
    self.assertEqual(_OURS, sorted(_OURS))
    # Those that programs of TensorFlow 1 and 2 name.
    self.assertContainsSubset(["hierarchical_copy", "nccl", "pscpu", "psgpu",
                               "rechd", "xring"], _OURS)

  def test_every_file_of_the_folder_registers(self):
    for module in pkgutil.iter_modules(algorithms.__path__):
      with self.subTest(module.name):
        homes = {known.all_reduce.__module__
                 for known in tf_cdops.all_reduce_algorithms()}
        self.assertIn(f"tf_cdops.algorithms.{module.name}", homes)

  @parameterized.parameters("mine", "Mine2", "my-own", "my_own.v2", "x")
  def test_registers(self, name):
    self.assertIs(self.register(name), identity)
    self.assertEqual(self.names(), sorted([*_OURS, name]))
    found = registry.lookup(name)
    self.assertEqual((found.name, found.all_reduce, found.traffic),
                     (name, identity, None))
    self.assertEqual(registry.lookup(f"{name}/ps").pair,
                     (found, registry.lookup("ps")))

  @parameterized.parameters(
      "a/b", "a#b", "a:b", "@a", "a b", "auto", "", "2x", "_x", "-x", "x\n", 5,
      None, b"x", [["x"]])
  def test_bad_names(self, name):
    with self.assertRaisesRegex(
        errors.AlgorithmError,
        r"(?s)^`name` \(.*\) must be letters, digits, '_', '\.' or '-', begin "
        r"with a letter, and not be 'auto': '/' makes pairs, and '#', ':' and "
        r"'@' belong to the spec\.$"):
      self.register(name)
    self.assertEqual(self.names(), _OURS)

  def test_a_name_is_taken_once(self):
    with self.assertRaisesRegex(
        errors.AlgorithmError, r"^`name` \('xring'\) must not be registered "
        r"already; pass override=True to replace it\.$"):
      self.register("xring")
    self.assertIsNot(registry.lookup("xring").all_reduce, identity)

  def test_override(self):
    self.register("xring", override=True)
    self.assertIs(registry.lookup("xring").all_reduce, identity)
    self.assertIsNone(registry.lookup("xring").reduce_scatter)
    self.assertEqual(self.names(), _OURS)

  @parameterized.parameters(
      ("xrign", r" Did you mean 'xring'\?"),
      ("XRING", ""),
      ("pscp", r" Did you mean 'pscpu' or 'psgpu'\?"),
      ("mine2", r" Did you mean 'mine'\?"),
      ("", ""), ("?", ""), (5, ""))
  def test_unknown_names(self, name, hint):
    self.register("mine")
    with self.assertRaisesRegex(
        errors.AlgorithmError,
        rf"^`algorithm` \({re.escape(repr(name))}\) must be one of collective, "
        r"hierarchical_copy, mine, nccl, .*, xring, or a pair of them such as "
        rf"'xring/ps'\.{hint}$"):
      registry.lookup(name)

  @parameterized.parameters(
      ("xring/pss", r"`algorithm` \('pss'\) must be one of .* Did you mean "),
      ("no/xring", r"`algorithm` \('no'\) must be one of "),
      ("xring/", r"`algorithm` \(''\) must be one of "),
      ("/xring", r"`algorithm` \(''\) must be one of "),
      ("ps/ps/ps", r"`algorithm` \('ps/ps/ps'\) must be one name or a pair "
       r"'intra/inter', and has 3 parts\."))
  def test_bad_pairs(self, name, message):
    with self.assertRaisesRegex(errors.AlgorithmError, f"^{message}"):
      registry.lookup(name)

  @parameterized.parameters(
      ("reduce_scatter", "reduce_scatter", "all_gather"),
      ("all_gather", "reduce_scatter", "all_gather"),
      ("reduce", "reduce", "broadcast"), ("broadcast", "reduce", "broadcast"))
  def test_phases_come_in_twos(self, phase, first, second):
    with self.assertRaisesRegex(
        errors.AlgorithmError, f"^`{first}` and `{second}` of 'mine' must be "
        r"given together: each undoes the other\.$"):
      self.register("mine", **{phase: identity})
    self.assertEqual(self.names(), _OURS)

  @parameterized.parameters(
      ({}, "any devices"),
      ({"device_types": ["TPU", "GPU"]}, "GPU or TPU devices"),
      ({"single_worker": True}, "any devices, one worker"),
      ({"device_types": ["GPU"], "single_worker": True, "kernel": "NcclReduce",
        "whole_devices": True}, "GPU devices, one worker, the NcclReduce "
       "kernel, no virtual GPUs"))
  def test_says_what_it_needs(self, needs, words):
    self.register("mine", **needs)
    self.assertEqual(repr(registry.lookup("mine")),
                     f"<mine: For a test. Needs {words}.>")

  def test_device_types_are_a_list(self):
    with self.assertRaisesRegex(
        ValueError, r"`device_types` \('GPU'\) must be a list"):
      self.register("mine", device_types="GPU")

  def test_needs_of_ours(self):
    needs = {known.name: known.needs
             for known in tf_cdops.all_reduce_algorithms()
             if known.needs != "any devices"}
    self.assertEqual(
        needs,
        {"nccl": "GPU devices, one worker, the NcclAllReduce kernel, no "
                 "virtual GPUs", "psgpu": "GPU devices"})


_GOOD = """
    import tf_cdops

    @tf_cdops.register_all_reduce("good", description="All to all.")
    def good(fabric, values, group):
      return [fabric.add(values, place) for place in group.places]
"""
_CLASHING = """
    import tf_cdops

    tf_cdops.register_all_reduce("xring", description="Theirs.")(print)
"""
_PROGRAM = """
    import tf_cdops
    from tf_cdops import registry
    from tf_cdops.registry import proof

    print(*(a.name for a in tf_cdops.all_reduce_algorithms()))
    print(*(a.name for a in tf_cdops.all_reduce_algorithms()))
    for name in ("good", "good/xring", "xring/good"):
      trace = proof.prove(registry.lookup(name, 2),
                          tf_cdops.Topology.grid(2, 2), length=10)
      print(name, trace.moved)
    print(tf_cdops.parse_all_reduce_spec("good#2:1k:xring/good"))
    tf_cdops.parse_all_reduce_spec("broken")
"""


class PluginsTest(absltest.TestCase):
  """Installs distributions for real, each with an entry point."""

  def install(self, name: str, module: str, target: str | None = None) -> None:
    site = pathlib.Path(self.site)
    (site / f"{name}_plugin.py").write_text(textwrap.dedent(module))
    info = site / f"{name}_plugin-1.0.dist-info"
    os.makedirs(info)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[tf_cdops.algorithms]\n{name} = {target or f'{name}_plugin'}\n")

  def run_program(self, program):
    return python_process.run("-c", textwrap.dedent(program),
                              first_on_path=(self.site,))

  def setUp(self):
    super().setUp()
    self.site = self.create_tempdir().full_path

  def test_a_broken_plugin_is_reported_once_and_harms_nothing(self):
    self.install("aaa", "1 / 0")
    self.install("good", _GOOD)
    self.install("clashing", _CLASHING)
    self.install("missing", "", "no_such_module:thing")
    done = self.run_program(_PROGRAM)
    names = " ".join(sorted([*_OURS, "good"]))
    self.assertEqual(done.stdout.splitlines(), [
        names, names, "good 120", "good/xring 80", "xring/good 60",
        "good#2:1k:xring/good"])
    reports = [line for line in done.stderr.splitlines()
               if "can't be loaded" in line]
    self.assertLen(reports, 3)
    for name, why in (
        ("aaa", r"\(aaa_plugin\) .* ZeroDivisionError: division by zero"),
        ("clashing", r"\(clashing_plugin\) .* AlgorithmError: `name` "
                     r"\('xring'\) must not be registered already"),
        ("missing", r"\(no_such_module:thing\) .* ModuleNotFoundError: No mod"
                    r"ule named 'no_such_module'")):
      self.assertLen([line for line in reports if f"'{name}'" in line], 1)
      self.assertRegex(done.stderr, rf"The all-reduce algorithms of '{name}' "
                       rf"{why}")
    self.assertRegex(done.stderr, r"AlgorithmError: `algorithm` \('broken'\) "
                     r"must be one of collective, good, ")

  def test_importing_the_package_loads_no_plugin(self):
    self.install("loud", "print('loaded')")
    done = self.run_program("""
        import tf_cdops
        print("imported")
        tf_cdops.all_reduce_algorithms()
    """)
    self.assertEqual(done.stdout, "imported\nloaded\n", done.stderr)


if __name__ == "__main__":
  absltest.main()
