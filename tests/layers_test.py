"""Holds which module may import which, by reading the imports."""

import ast
import pathlib
import re

from absl.testing import absltest

import tf_cdops

_PACKAGE = pathlib.Path(tf_cdops.__file__).parent
# The rooms, from the top: a module may import those after it, and its own
# row. CONTRIBUTING.md has the same rows, in the same order.
_LAYERS = (
    ("tf_cdops.__main__",),
    ("tf_cdops.cli",),
    ("tf_cdops.keras",),
    ("tf_cdops.cluster",),
    ("tf_cdops",),  # The facade, which those above use as users do.
    ("tf_cdops.cross_device_ops",),
    ("tf_cdops.execution",),
    ("tf_cdops.explaining",),
    ("tf_cdops.planning",),
    ("tf_cdops.cost",),
    ("tf_cdops.algorithms",),
    ("tf_cdops.codecs",),
    ("tf_cdops.registry",),
    ("tf_cdops.fabric",),
    ("tf_cdops.base",),
)
_MOST_ROOMS = 13
# These see no TensorFlow, so that they run and are tested without it.
_PURE = ("tf_cdops.explaining", "tf_cdops.planning", "tf_cdops.cost",
         "tf_cdops.algorithms", "tf_cdops.registry", "tf_cdops.fabric.base",
         "tf_cdops.fabric.tracing", "tf_cdops.cli.measuring.tuning",
         "tf_cdops.cli.measuring.link_results",
         *(f"tf_cdops.base.{name}" for name in (
             "device_names", "errors", "output_files", "rates", "requirements",
             "tensorflow_1", "topology", "version")),
         *(f"tf_cdops.cluster.{name}" for name in (
             "addresses", "cables", "interfaces", "isolation", "local",
             "namespaces", "ports", "probing")),
         "tf_cdops.cli.launch", "tf_cdops.cli.launching",
         "tf_cdops.cli.meeting")
# The facade's imports for type checkers, and of modules named by a string.
_FACADE = "tf_cdops"


def _modules() -> dict[str, ast.Module]:
  modules = {}
  for path in sorted(_PACKAGE.rglob("*.py")):
    parts = path.relative_to(_PACKAGE.parent).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    modules[name] = ast.parse(path.read_text(encoding="utf-8"))
  return modules


def _imports(tree: ast.Module) -> set[str]:
  """Returns the full names of what a module imports, anywhere in it."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      names.update(f"{node.module}.{alias.name}" for alias in node.names)
  return names


def _within(name: str, package: str) -> bool:
  return name == package or (package != _FACADE
                             and name.startswith(package + "."))


def _layer(name: str) -> int | None:
  for level, row in enumerate(_LAYERS):
    if any(_within(name, package) for package in row):
      return level
  return None


class LayersTest(absltest.TestCase):

  def test_every_module_has_a_layer(self):
    self.assertEqual([], [m for m in _modules() if _layer(m) is None])

  def test_rooms_are_few(self):
    rooms = {path.name for path in _PACKAGE.iterdir()
             if not path.name.startswith("__")} - {"BUILD", "py.typed"}
    self.assertLessEqual(len(rooms), _MOST_ROOMS, rooms)

  def test_contributing_has_the_map(self):
    page = _PACKAGE.parent / "CONTRIBUTING.md"
    rows = re.findall(r"^\| `(\w+)/` \|", page.read_text(encoding="utf-8"),
                      re.MULTILINE)
    rooms = [name.removeprefix("tf_cdops.") for row in _LAYERS for name in row
             if name not in ("tf_cdops", "tf_cdops.__main__")]
    self.assertEqual(rows, rooms)

  def test_tests_are_in_the_rooms_of_what_they_test(self):
    tests = pathlib.Path(__file__).parent
    folders = {path.parent.relative_to(tests).as_posix()
               for path in tests.rglob("*_test.py")} - {"."}
    for folder in folders:
      self.assertTrue((_PACKAGE / folder).is_dir(), folder)

  def test_imports_go_down(self):
    modules = _modules()
    for name, tree in modules.items():
      if name == _FACADE:
        continue
      for imported in _imports(tree):
        if not imported.startswith("tf_cdops"):
          continue
        target = imported if imported in modules or imported == _FACADE else (
            imported.rpartition(".")[0])
        with self.subTest(f"{name} imports {imported}"):
          self.assertLessEqual(_layer(name), _layer(target))

  def test_private_tensorflow_in_one_file(self):
    users = {name for name, tree in _modules().items()
             if any("tensorflow.python" in imported or
                    imported.startswith("tensorflow.core")
                    for imported in _imports(tree))}
    self.assertEqual({"tf_cdops.base.tf_compat"}, users)

  def test_pure_modules_see_no_tensorflow(self):
    for name, tree in _modules().items():
      if any(_within(name, package) for package in _PURE):
        with self.subTest(name):
          self.assertEqual([], [i for i in _imports(tree)
                                if i.split(".")[0] in ("tensorflow", "keras")])

  def test_tensorflows_old_builders_are_not_used(self):
    for name, tree in _modules().items():
      with self.subTest(name):
        self.assertEqual([], [i for i in _imports(tree)
                              if "distribute.v1" in i])


if __name__ == "__main__":
  absltest.main()
