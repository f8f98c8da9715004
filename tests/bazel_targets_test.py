"""Bazel runs every test, and the deps of a folder are its imports of others."""

import ast
import pathlib
from collections.abc import Iterator
from typing import Any

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_TESTS = _ROOT / "tests"
_FACADE = "//tf_cdops"
# The registry, which the algorithms import, loads them by name.
_LOADED_BY_NAME = {"//tf_cdops/planning": {"//tf_cdops/algorithms"}}


def _run_build(folder: pathlib.Path) -> tuple[dict[str, Any], list[Any]]:
  """Runs a BUILD file, as Python; returns its variables and its targets."""
  def glob(include, exclude=()):
    found, left_out = (
        {path.relative_to(folder).as_posix()
         for pattern in patterns for path in folder.glob(pattern)}
        for patterns in (include, exclude))
    return sorted(found - left_out)

  targets = []
  variables = dict.fromkeys(
      ("licenses", "load", "package", "package_group"),
      lambda *_, **__: None)
  variables |= dict.fromkeys(("py_library", "py_test"),
                             lambda **target: targets.append(target))
  variables["glob"] = glob
  exec((folder / "BUILD").read_text(encoding="utf-8"), variables)
  return variables, targets


def _libraries() -> Iterator[tuple[str, list[pathlib.Path], set[str]]]:
  """Yields the label, the files and the deps of the package's targets."""
  for init in sorted((_ROOT / "tf_cdops").rglob("__init__.py")):
    folder = init.parent
    package = f"//{folder.relative_to(_ROOT).as_posix()}"
    for target in _run_build(folder)[1]:
      name = target["name"]
      deps = target.get("deps", ())
      yield (package if name == folder.name else f"{package}:{name}",
             [folder / source for source in target["srcs"]],
             {package + dep if dep[0] == ":" else dep for dep in deps})


def _imports(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the files of the package that a file imports."""
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
      continue
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
      parts = (prefix + alias.name).split(".")
      if parts[0] == "tf_cdops":
        module = _ROOT.joinpath(*parts)
        files = (module.with_suffix(".py"), module / "__init__.py",
                 module.parent.with_suffix(".py"),
                 module.parent / "__init__.py")
        yield next(file for file in files if file.exists())


class BazelTargetsTest(absltest.TestCase):

  def test_every_test_is_run(self):
    _, targets = _run_build(_TESTS)
    self.assertCountEqual(
        [f"{target['name']}.py" for target in targets
         if target["name"].endswith("_test")
         and "manual" not in target["tags"]],
        [path.relative_to(_TESTS).as_posix()
         for path in _TESTS.rglob("*_test.py")])

  def test_exceptions_are_of_tests(self):
    variables, targets = _run_build(_TESTS)
    for name in ("_DATA", "_SHARDS", "_SLOW"):
      with self.subTest(name):
        self.assertContainsSubset(variables[name],
                                  [target["name"] for target in targets])

  def test_deps_are_the_imports(self):
    libraries = list(_libraries())
    owners = {file: label for label, files, _ in libraries for file in files}
    for label, files, deps in libraries:
      imported = {owners[file] for path in files for file in _imports(path)}
      # Whoever uses a folder has the facade: Python imports it first.
      imported -= {label, _FACADE}
      with self.subTest(label):
        self.assertEqual(deps, imported | _LOADED_BY_NAME.get(label, set()))


if __name__ == "__main__":
  absltest.main()
