"""Builds the wheel, looks into it, and uses it in an empty environment."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_SMOKE = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
import tf_cdops
ops = tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto")
result = ops.reduce(tf.distribute.ReduceOp.SUM, tf.constant(3.0), "CPU:0")
assert float(result) == 3.0, result
print(tf_cdops.__file__, tf_cdops.__version__)
"""


def _run(*command: str, cwd: pathlib.Path) -> str:
  # Bazel's PYTHONPATH would come before what is installed.
  env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
  done = subprocess.run(command, cwd=cwd, env=env, capture_output=True,
                        text=True, timeout=280, check=False)
  if done.returncode:
    raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
  return done.stdout


class WheelTest(absltest.TestCase):

  def test_wheel(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    source = folder / "source"  # Building leaves files behind: not in ours.
    shutil.copytree(_ROOT / "tf_cdops", source / "tf_cdops")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
      shutil.copy(_ROOT / name, source)
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
         "--no-build-isolation", "--wheel-dir", str(folder), str(source),
         cwd=folder)
    wheel, = folder.glob("tf_cdops-*.whl")
    with zipfile.ZipFile(wheel) as archive:
      names = archive.namelist()
    self.assertIn("tf_cdops/py.typed", names)
    self.assertIn("tf_cdops/algorithms/xring.py", names)
    self.assertEqual([], [name for name in names if "BUILD" in name
                          or name.startswith(("tests", "examples"))])

    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    site = pathlib.Path(_run(
        str(python), "-c",
        "import sysconfig; print(sysconfig.get_path('purelib'))",
        cwd=folder).strip())
    _run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
         "--target", str(site), str(wheel), cwd=folder)
    # TensorFlow, 700 MB, is this environment's: a path, not an installation,
    # so that its editable tf_cdops isn't seen.
    (site / "tensorflow.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where, version = _run(str(python), "-c", _SMOKE, cwd=folder).split()
    self.assertTrue(pathlib.Path(where).is_relative_to(folder / "venv"), where)
    self.assertIn(version, wheel.name)
    self.assertIn("demo", _run(str(python), "-m", "tf_cdops", "--help",
                               cwd=folder))


if __name__ == "__main__":
  absltest.main()
