"""Bazel runs every test, and the deps of a room are its imports of others."""

import ast
import pathlib
from typing import Any

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_TESTS, _PACKAGE = _ROOT / "tests", _ROOT / "tf_cdops"
# The registry, which the algorithms import, loads them by name.
_LOADED_BY_NAME = {"planning": {"algorithms", "codecs"}}


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
      ("exports_files", "licenses", "load", "package"),
      lambda *_, **__: None)
  variables |= dict.fromkeys(("py_library", "py_test"),
                             lambda **target: targets.append(target))
  variables["glob"] = glob
  exec((folder / "BUILD").read_text(encoding="utf-8"), variables)
  return variables, targets


def _imported_rooms(room: str) -> set[str]:
  rooms = set()
  for path in (_PACKAGE / room).rglob("*.py"):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
      if isinstance(node, ast.ImportFrom):
        rooms |= {f"{node.module}.{alias.name}".split(".")[1]
                  for alias in node.names
                  if node.module.split(".")[0] == "tf_cdops"}
  return rooms - {room}


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
    rooms = _run_build(_PACKAGE)[0]["_ROOMS"]
    self.assertCountEqual(rooms, [init.parent.name for init
                                  in _PACKAGE.glob("*/__init__.py")])
    for room, others in rooms.items():
      with self.subTest(room):
        self.assertEqual(set(others), _imported_rooms(room)
                         | _LOADED_BY_NAME.get(room, set()))


if __name__ == "__main__":
  absltest.main()
