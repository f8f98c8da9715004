"""Holds which module may import which, by reading the imports."""

import ast
import pathlib

from absl.testing import absltest

import tf_cdops

_PACKAGE = pathlib.Path(tf_cdops.__file__).parent
# From the top: a module may import those after it, and its own row.
_LAYERS = (
    ("tf_cdops.__main__",),
    ("tf_cdops.cli",),
    ("tf_cdops.measuring",),
    ("tf_cdops.cluster",),
    ("tf_cdops.flags",),
    ("tf_cdops",),  # The facade, which those above use as users do.
    ("tf_cdops.cross_device_ops",),
    ("tf_cdops.all_reducing",),
    ("tf_cdops.self_checking",),
    ("tf_cdops.execution",),
    ("tf_cdops.inputs",),
    ("tf_cdops.packing", "tf_cdops.sparse"),
    ("tf_cdops.devices",),
    ("tf_cdops.explaining", "tf_cdops.tuning"),
    ("tf_cdops.planning",),
    ("tf_cdops.auto_rules",),
    ("tf_cdops.algorithms",),
    ("tf_cdops.fabric",),
    ("tf_cdops.spec", "tf_cdops.topology"),
    ("tf_cdops.device_names", "tf_cdops._tensorflow_1"),
    ("tf_cdops.errors",),
    ("tf_cdops._tf_compat",),
    ("tf_cdops._requirements",),
    ("tf_cdops.version",),
)
# These see no TensorFlow, so that they run and are tested without it.
_PURE = ("tf_cdops.explaining", "tf_cdops.tuning", "tf_cdops.planning",
         "tf_cdops.auto_rules", "tf_cdops.algorithms", "tf_cdops.fabric.base",
         "tf_cdops.fabric.tracing", "tf_cdops.fabric.traffic", "tf_cdops.spec",
         "tf_cdops.topology", "tf_cdops.device_names",
         "tf_cdops._tensorflow_1", "tf_cdops.errors", "tf_cdops.version",
         "tf_cdops._requirements")
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
    self.assertEqual({"tf_cdops._tf_compat"}, users)

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
