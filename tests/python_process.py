"""Runs Python programs in processes of their own; needs no TensorFlow."""

import atexit
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence

import tf_cdops

ROOT = pathlib.Path(tf_cdops.__file__).resolve().parents[1]
_TIMEOUT = 240
# Only demo and plots use these. Keras loads them with itself, and so with
# TensorFlow, wherever they are installed: a third of the start of a process.
_EXTRAS = ("matplotlib", "sklearn")


@functools.cache
def without_extras(*but: str) -> str:
  """Returns a folder which, first on the path, hides what is optional."""
  folder = tempfile.mkdtemp(prefix="without_extras_")
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  for name in set(_EXTRAS) - set(but):
    (pathlib.Path(folder) / f"{name}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{name}'\")")
  return folder


def run(*args: str, first_on_path: tuple[str, ...] = (),
        columns: str | None = None, extras: tuple[str, ...] = ()
        ) -> subprocess.CompletedProcess[str]:
  """Runs `python args` with this process's modules, and others before them.

  Args:
    *args: what Python is given.
    first_on_path: folders to look for modules in first.
    columns: a terminal's width; pytest's own isn't passed on.
    extras: the optional packages that are there.

  Returns:
    What it did.
  """
  env = environment(first_on_path, extras)
  if columns is not None:
    env["COLUMNS"] = columns
  return _run([sys.executable, *args], env)


def environment(first_on_path: tuple[str, ...] = (),
                extras: tuple[str, ...] = ()) -> dict[str, str]:
  """Returns the environment of a Python with this process's modules."""
  path = [*first_on_path, without_extras(*extras), str(ROOT),
          *filter(None, sys.path)]
  env = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
  env.pop("COLUMNS", None)
  if "TEST_TMPDIR" in env:  # Bazel lets a test write nowhere else.
    env["HOME"] = env["TEST_TMPDIR"]
  return env


def run_script(script: str) -> subprocess.CompletedProcess[str]:
  """Runs an indented script, with TensorFlow's start-up messages off."""
  return run("-c", 'import os; os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"\n'
             + textwrap.dedent(script))


@dataclasses.dataclass(frozen=True)
class CommandOutcome:
  """What a command did; and whether it, or one before it, needed TensorFlow."""

  returncode: int
  stdout: str
  stderr: str
  loaded_tensorflow: bool


def run_commands(commands: Sequence[Sequence[str]], *, before: str = "",
                 first_on_path: tuple[str, ...] = (),
                 extras: tuple[str, ...] = ()) -> list[CommandOutcome]:
  """Runs `tf_cdops` for each list of arguments, one by one in one process.

  Args:
    commands: each one's arguments. Those that use devices must agree in their
      number, which TensorFlow takes once a process.
    before: Python that the process runs first.
    first_on_path: folders to look for modules in first.
    extras: the optional packages that are there.

  Returns:
    What each did.
  """
  done = run("-c", f"{before}\n" + textwrap.dedent(f"""\
      import contextlib, io, json, sys
      from tf_cdops.cli import main
      outcomes = []
      for args in {[list(args) for args in commands]!r}:
        with (contextlib.redirect_stdout(io.StringIO()) as out,
              contextlib.redirect_stderr(io.StringIO()) as err):
          try:
            code = main.main(args)
          except SystemExit as end:
            code = end.code
        outcomes.append([code, out.getvalue(), err.getvalue(),
                         "tensorflow" in sys.modules])
      print(json.dumps(outcomes))
      """), first_on_path=first_on_path, extras=extras)
  if done.returncode or done.stderr:
    raise AssertionError(done.stderr)
  return [CommandOutcome(*outcome) for outcome in json.loads(done.stdout)]


def without_warning(stderr: str) -> str:
  """Leaves out what a LocalCluster says where no private network can be."""
  return "".join(line for line in stderr.splitlines(keepends=True)
                 if "LocalCluster: TensorFlow's servers have" not in line)


def run_bare(script: str, path: tuple[str, ...]
             ) -> subprocess.CompletedProcess[str]:
  """Runs a script that can import `path` and the standard library, no more."""
  script = f"import sys; sys.path[:0] = {list(path)!r}\n" + script
  return _run([sys.executable, "-I", "-S", "-c", script], dict(os.environ))


def _run(command: list[str], env: dict[str, str]
         ) -> subprocess.CompletedProcess[str]:
  return subprocess.run(command, env=env, capture_output=True, text=True,
                        timeout=_TIMEOUT, check=False)
