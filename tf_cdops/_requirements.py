"""Tells, before TensorFlow is loaded, whether a usable one is installed."""

import importlib
import importlib.metadata
import importlib.util
import re
import sys

from tf_cdops import version

# TensorFlow is distributed under many names; these are looked at in turn.
_DISTRIBUTIONS = (
    "tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu",
    "tensorflow-intel", "tensorflow-macos", "tensorflow-rocm",
)


def check_tensorflow() -> None:
  """Raises one ImportError when TensorFlow is missing or too old."""
  remedy = ("install one with `pip install 'tf-cdops[cpu]'` (CPU only), "
            "`pip install 'tf-cdops[tensorflow]'` or "
            "`pip install 'tf-cdops[and-cuda]'` (GPUs)")
  found = _tensorflow_version()
  if found is None:
    raise ImportError(
        f"tf_cdops needs TensorFlow {version.TENSORFLOW_OLDEST} or newer, and "
        f"none is installed; {remedy}.")
  if _numbers(found) < _numbers(version.TENSORFLOW_OLDEST):
    raise ImportError(
        f"tf_cdops needs TensorFlow {version.TENSORFLOW_OLDEST} or newer, and "
        f"{found} is installed; {remedy}.")


def _tensorflow_version() -> str | None:
  """Returns the installed TensorFlow's version, or None without one.

  Loading TensorFlow takes seconds and prints its start-up chatter, so the
  installed metadata is asked first. Only a build without any is imported.
  """
  if "tensorflow" not in sys.modules:
    if importlib.util.find_spec("tensorflow") is None:
      return None
    for name in _DISTRIBUTIONS:
      try:
        return importlib.metadata.version(name)
      except importlib.metadata.PackageNotFoundError:
        continue
  return importlib.import_module("tensorflow").__version__


def _numbers(text: str) -> tuple[int, ...]:
  """Returns the first two numbers of a version, "2.16.1-rc0" -> (2, 16)."""
  return tuple(int(n) for n in re.findall(r"\d+", text)[:2])
