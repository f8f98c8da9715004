"""Tests of what `import tf_cdops` does about TensorFlow, in real processes."""

import pathlib
import subprocess

from absl.testing import absltest
from absl.testing import parameterized
from tests import python_process

import tf_cdops

_REMEDY = (
    "install one with `pip install 'tf-cdops[cpu]'` (CPU only), "
    "`pip install 'tf-cdops[tensorflow]'` or "
    "`pip install 'tf-cdops[and-cuda]'` (GPUs).\n")
_REFUSES = 'raise RuntimeError("TensorFlow was loaded to see its version")'


class RequirementsTest(parameterized.TestCase):

  def site(self, version: str | None, *, metadata: str | None = None,
           loadable: bool = True) -> str:
    """Makes a directory of packages with a TensorFlow that is only a shell.

    Args:
      version: the package's version; None makes a directory without a package,
        as an uninstallation may leave behind.
      metadata: the distribution that the package belongs to, None for a build
        that was never installed.
      loadable: whether the package can be imported.

    Returns:
      The directory.
    """
    root = pathlib.Path(self.create_tempdir().full_path)
    package = root / "tensorflow"
    package.mkdir()
    if version is None:
      (package / "leftover.txt").touch()
    else:
      (package / "__init__.py").write_text(
          f"__version__ = {version!r}" if loadable else _REFUSES)
    if metadata is not None:
      self.add_metadata(root, metadata, version)
    return str(root)

  def add_metadata(self, root: pathlib.Path, name: str, version: str) -> None:
    info = root / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("tensorflow/__init__.py,,\n")

  def import_with(self, *path: str, before: str = ""
                  ) -> subprocess.CompletedProcess[str]:
    return python_process.run_bare(
        f"{before}\nimport tf_cdops\n"
        "print(tf_cdops.__version__, 'tensorflow' in sys.modules)",
        (*path, str(python_process.ROOT)))

  def assert_one_import_error(self, outcome: subprocess.CompletedProcess[str],
                              found: str) -> None:
    message = (f"ImportError: tf_cdops needs TensorFlow 2.16 or newer, and "
               f"{found} is installed; {_REMEDY}")
    self.assertEndsWith(outcome.stderr, message)
    self.assertEqual(outcome.stderr.count("Traceback"), 1, outcome.stderr)
    self.assertNotIn("During handling", outcome.stderr)
    self.assertEqual((outcome.returncode, outcome.stdout), (1, ""))

  def test_none(self):
    self.assert_one_import_error(self.import_with(), "none")

  def test_blocked(self):
    self.assert_one_import_error(self.import_with(
        self.site("2.21.0"), before='sys.modules["tensorflow"] = None'), "none")

  def test_leftover_directory(self):
    self.assert_one_import_error(self.import_with(self.site(None)), "none")

  @parameterized.parameters("2.10.0", "2.15.1", "2.9.0-rc1", "1.15.0", "2.15")
  def test_too_old(self, version):
    for metadata in ("tensorflow", "tensorflow-cpu", None):
      with self.subTest(metadata=metadata):
        site = self.site(version, metadata=metadata,
                         loadable=metadata is None)
        self.assert_one_import_error(self.import_with(site), version)

  def test_too_old_ahead_of_a_good_one(self):
    """What counts is the TensorFlow that will be imported."""
    good = self.site("2.21.0", metadata="tensorflow-cpu")
    for metadata in ("tensorflow", None):
      with self.subTest(metadata=metadata):
        old = self.site("2.10.0", metadata=metadata)
        self.assert_one_import_error(self.import_with(old, good), "2.10.0")

  def test_good_one_ahead_of_a_too_old_one(self):
    good = self.site("2.21.0", metadata="tensorflow-cpu", loadable=False)
    old = self.site("2.10.0", metadata="tensorflow")
    outcome = self.import_with(good, old)
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))

  @parameterized.product(
      version=("2.16.0", "2.16.0-rc0", "2.21.0", "2.100.1", "3.0.0",
               "2.22.0.dev20260101"),
      metadata=("tensorflow", "tensorflow-cpu", "tf-nightly",
                "tensorflow-rocm"))
  def test_good_one_is_not_loaded(self, version, metadata):
    outcome = self.import_with(
        self.site(version, metadata=metadata, loadable=False))
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertRegex(outcome.stdout, r"^\d+\.\d+\.\d+ False\n$")

  def test_good_one_without_metadata_is_loaded(self):
    outcome = self.import_with(self.site("2.21.0"))
    self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
    self.assertRegex(outcome.stdout, r"^\S+ True\n$")

  def test_the_real_one_is_not_loaded(self):
    outcome = python_process.run(
        "-c", "import sys, tf_cdops; print('tensorflow' in sys.modules)")
    self.assertEqual((outcome.returncode, outcome.stdout, outcome.stderr),
                     (0, "False\n", ""))

  def test_modules_with_public_names(self):
    done = python_process.run("-c", (
        "import tf_cdops; tf_cdops.cluster.StepWatchdog(None, 1.0); "
        "tf_cdops.errors.ClusterError; tf_cdops.flags.define_flags"))
    self.assertEqual(done.returncode, 0, done.stderr)

  def test_unknown_name(self):
    with self.assertRaisesRegex(
        AttributeError, "^module 'tf_cdops' has no attribute 'Nonsense'$"):
      _ = tf_cdops.Nonsense
    self.assertContainsSubset({"ReductionToOneDevice", "__version__"},
                              dir(tf_cdops))


if __name__ == "__main__":
  absltest.main()
