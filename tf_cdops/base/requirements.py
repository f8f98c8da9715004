"""Tells, before TensorFlow is loaded, whether a usable one is installed."""

import importlib
import importlib.metadata
import importlib.util
import pathlib
import re
import sys

from tf_cdops.base import version

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
  """Returns the version of the TensorFlow that an import would give, or None.

  Loading TensorFlow takes seconds and prints its start-up chatter, so the
  metadata beside it are asked first. Only where they don't tell is it loaded.
  """
  if sys.modules.get("tensorflow") is None:
    found = importlib.util.find_spec("tensorflow")
    if found is None or found.origin is None:  # A folder left by a removal.
      return None
    site = str(pathlib.Path(found.origin).parents[1])
    versions = {
        distribution.version for name in _DISTRIBUTIONS for distribution
        in importlib.metadata.distributions(name=name, path=[site])}
    if len(versions) == 1:
      return versions.pop()
  return importlib.import_module("tensorflow").__version__


def _numbers(text: str) -> tuple[int, ...]:
  """Returns the first two numbers of a version, "2.16.1-rc0" -> (2, 16)."""
  return tuple(int(n) for n in re.findall(r"\d+", text)[:2])
