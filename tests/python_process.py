"""Runs Python programs in processes of their own; needs no TensorFlow."""

import os
import pathlib
import subprocess
import sys
import textwrap

import tf_cdops

ROOT = pathlib.Path(tf_cdops.__file__).resolve().parents[1]
_TIMEOUT = 240


def run(*args: str, first_on_path: tuple[str, ...] = (),
        columns: str | None = None) -> subprocess.CompletedProcess[str]:
  """Runs `python args` with this process's modules, and others before them.

  Args:
    *args: what Python is given.
    first_on_path: folders to look for modules in first.
    columns: a terminal's width; pytest's own isn't passed on.

  Returns:
    What it did.
  """
  path = [*first_on_path, str(ROOT), *filter(None, sys.path)]
  env = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
  env.pop("COLUMNS", None)
  if "TEST_TMPDIR" in env:  # Bazel lets a test write nowhere else.
    env["HOME"] = env["TEST_TMPDIR"]
  if columns is not None:
    env["COLUMNS"] = columns
  return _run([sys.executable, *args], env)


def run_script(script: str) -> subprocess.CompletedProcess[str]:
  """Runs an indented script, with TensorFlow's start-up messages off."""
  return run("-c", 'import os; os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"\n'
             + textwrap.dedent(script))


def run_bare(script: str, path: tuple[str, ...]
             ) -> subprocess.CompletedProcess[str]:
  """Runs a script that can import `path` and the standard library, no more."""
  script = f"import sys; sys.path[:0] = {list(path)!r}\n" + script
  return _run([sys.executable, "-I", "-S", "-c", script], dict(os.environ))


def _run(command: list[str], env: dict[str, str]
         ) -> subprocess.CompletedProcess[str]:
  return subprocess.run(command, env=env, capture_output=True, text=True,
                        timeout=_TIMEOUT, check=False)
