"""Bazel has a target for every test, runs it, and gives it its imports."""

import ast
import pathlib

from absl.testing import absltest

_TESTS = pathlib.Path(__file__).resolve().parent
# Which `bazel test //...` leaves out; a comment at the target says why.
_LEFT_OUT: frozenset[str] = frozenset()


def _targets() -> dict[str, dict[str, list[str]]]:
  """Returns the attributes that are lists, of the rule for each source."""
  # What the BUILD files say is Python, too.
  tree = ast.parse((_TESTS / "BUILD").read_text(encoding="utf-8"))
  targets = {}
  for call in ast.walk(tree):
    if isinstance(call, ast.Call) and call.func.id in ("py_library", "py_test"):
      lists = {keyword.arg: ast.literal_eval(keyword.value)
               for keyword in call.keywords
               if isinstance(keyword.value, ast.List)}
      source, = lists["srcs"]
      targets[source] = lists | {"rule": call.func.id}
  return targets


def _imports(path: pathlib.Path) -> set[str]:
  """Returns the labels of what a file imports from this repository."""
  labels = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
      continue
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
      package, _, name = (prefix + alias.name).partition(".")
      if package == "tests":
        labels.add(f":{name}")
      elif package == "tf_cdops":
        labels.add("//tf_cdops")
      elif package == "benchmarks":
        labels.add(f"//benchmarks:{name}")
  return labels


class BazelTargetsTest(absltest.TestCase):

  def test_every_test_is_run(self):
    run = {source for source, target in _targets().items()
           if target["rule"] == "py_test"
           and "manual" not in target.get("tags", ())}
    tests = {path.name for path in _TESTS.glob("*_test.py")}
    self.assertEqual(run, tests - _LEFT_OUT)

  def test_deps_are_the_imports(self):
    for source, target in _targets().items():
      with self.subTest(source):
        self.assertContainsSubset(_imports(_TESTS / source),
                                  target.get("deps", ()))


if __name__ == "__main__":
  absltest.main()
