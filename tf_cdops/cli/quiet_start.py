"""Keeps what TensorFlow says when it is loaded off a command's messages."""

import contextlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

# Said whatever TF_CPP_MIN_LOG_LEVEL is, on CPUs with certain instructions.
_CHATTER = re.compile(
    rb"All log messages before absl::InitializeLog\(\) is called"
    rb"|oneDNN custom operations are on")


class QuietLoading(importlib.abc.MetaPathFinder):
  """Loads TensorFlow as ever; first on sys.meta_path, it does so quietly."""

  def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                target: ModuleType | None = None) -> Any:
    del path, target
    if fullname != "tensorflow":
      return None
    spec = importlib.machinery.PathFinder.find_spec(fullname)
    if spec is not None and spec.loader is not None:
      load = spec.loader.exec_module

      def load_quietly(module: ModuleType) -> None:
        with _without_chatter():
          load(module)

      spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
    return spec


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
  """Holds standard error back, TensorFlow's C++ code's too, and sifts it."""
  try:
    stderr = os.dup(2)
  except OSError:  # There is none.
    yield
    return
  with tempfile.TemporaryFile() as held:
    sys.stderr.flush()
    os.dup2(held.fileno(), 2)
    try:
      yield
    finally:
      sys.stderr.flush()
      os.dup2(stderr, 2)
      os.close(stderr)
      held.seek(0)
      for line in held:
        if not _CHATTER.search(line):
          os.write(2, line)
