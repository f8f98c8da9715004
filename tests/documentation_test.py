"""Runs every code block of the README and every example in a docstring."""

import ast
import doctest
import functools
import importlib
import io
import os
import pathlib
import pkgutil
import re
import shlex
from contextlib import redirect_stdout
from unittest import mock

from tests import virtual_devices

from absl.testing import absltest
import tensorflow as tf

import tf_cdops
from tf_cdops.cli import main
from tf_cdops.planning import spec
from tf_cdops.registry import registration

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")


class DocumentationTest(absltest.TestCase):

  def test_readme_python_blocks_run(self):
    blocks = re.findall(r"^```python\n(.*?)^```", _README, re.M | re.S)
    self.assertGreaterEqual(len(blocks), 5)
    # What they write is no part of the sources.
    self.addCleanup(os.chdir, os.getcwd())
    os.chdir(self.create_tempdir().full_path)
    # The README registers an algorithm; other tests mustn't see it.
    self.addCleanup(registration._algorithms.pop, "star", None)
    # A strategy takes all devices there are; sixteen train no better than four.
    devices = virtual_devices.names(4)
    self.enter_context(mock.patch.object(
        tf.distribute, "MirroredStrategy",
        functools.partial(tf.distribute.MirroredStrategy, devices)))
    names: dict = {}
    output = io.StringIO()
    for number, block in enumerate(blocks):
      with self.subTest(block=number), redirect_stdout(output):
        exec(compile(block, f"README block {number}", "exec"), names)
    self.assertIn("all_reduce_spec='xring:64k:ps'", output.getvalue())
    self.assertIn("4 20000 7000\n", output.getvalue())
    extended = names["strategy"].extended
    self.assertEqual(list(extended.worker_devices), devices)
    self.assertIsInstance(extended._cross_device_ops,
                          tf_cdops.MultiWorkerAllReduce)
    for weight in names["model"].trainable_variables:
      copies = names["strategy"].experimental_local_results(weight.value)
      self.assertLen({copy.numpy().tobytes() for copy in copies}, 1)

  def test_readme_shell_blocks_are_known(self):
    blocks = re.findall(r"^```sh\n(.*?)^```", _README, re.M | re.S)
    lines = [re.split(r"\s#", line)[0].strip() for block in blocks
             for line in block.replace("\\\n", " ").splitlines()]
    commands = [line.removeprefix("python -m tf_cdops ") for line in lines
                if line.startswith("python -m tf_cdops ")]
    self.assertLen(commands, 8)
    for command in commands:  # Each has tests of its own; these are flags.
      with self.subTest(command):
        args = main._parsers()[0].parse_args(shlex.split(command))
        if hasattr(args, "all_reduce_spec"):
          self.assertTrue(spec.parse(args.all_reduce_spec))
    # `make test` runs this; installing from the registry is for releases.
    self.assertCountEqual(
        ["pip install 'tf-cdops[cpu]'", "make demo", "make test"],
        [line for line in lines if not line.startswith("python -m tf_cdops ")])

  def test_docstring_examples(self):
    tried = 0
    for module in pkgutil.walk_packages(tf_cdops.__path__, "tf_cdops."):
      if module.name == "tf_cdops.__main__":
        continue
      loaded = importlib.import_module(module.name)
      outcome = doctest.testmod(
          loaded, extraglobs={"tf": tf, "tf_cdops": tf_cdops})
      self.assertEqual(0, outcome.failed, module.name)
      tried += outcome.attempted
    self.assertGreater(tried, 8)

  def test_public_names_are_documented(self):
    for name in tf_cdops.__all__:
      value = getattr(tf_cdops, name)
      if not isinstance(value, str):
        with self.subTest(name):
          self.assertTrue((value.__doc__ or "").strip())
    tree = ast.parse((_ROOT / "tf_cdops" / "__init__.py").read_text())
    self.assertTrue(ast.get_docstring(tree))


if __name__ == "__main__":
  absltest.main()
