"""Files that are written when some work is done: looked at before it begins."""

import errno
import os
import tempfile

from tf_cdops.base import errors


def check_writable(path: str, flag: str) -> None:
  """Raises if a file can't be written; it is neither left nor emptied.

  Args:
    path: the file that will be written when the work is done.
    flag: what named it, such as "--out", for the error.
  """
  where = f"`{flag}` ({path!r})"
  if not path:
    raise errors.InputError(
        f"{where} must name a file, and is empty; give a path.")
  if os.path.isdir(path):
    raise errors.InputError(f"{where} must name a file, not a folder.")
  folder = os.path.dirname(path) or "."
  if not os.path.isdir(folder):
    raise errors.InputError(
        f"{where} must be in a folder that is there; make {folder} first.")
  try:
    _try_to_open(path)
  except OSError as error:
    raise errors.InputError(
        f"{where} must be writable, and isn't ({error.strerror}); name another "
        "file.") from None


def _try_to_open(path: str) -> None:
  """Opens a file to add to it; a new one is removed again."""
  known = os.path.lexists(path)
  # Some of what isn't a file, a pipe say, waits for a reader when opened.
  if os.path.exists(path) and not os.path.isfile(path):
    if not os.access(path, os.W_OK):
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return
  with open(path, "ab"):
    pass
  if not known:
    os.remove(path)


def replace(path: str, text: str) -> None:
  """Writes a file at once: whoever reads it sees the old text or the new.

  What isn't a plain file, a pipe say, or is in a folder that takes no new
  files, is written as it is.
  """
  if os.path.exists(path) and not os.path.isfile(path):
    _write(path, text)
    return
  try:
    handle, new = tempfile.mkstemp(dir=os.path.dirname(path) or ".",
                                   prefix=f".{os.path.basename(path)}.")
    os.close(handle)
  except OSError:
    _write(path, text)
    return
  try:
    _write(new, text)
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(new, 0o666 & ~mask)  # A temporary file is its owner's alone.
    os.replace(new, os.path.realpath(path))
  except BaseException:
    os.unlink(new)
    raise


def _write(path: str, text: str) -> None:
  with open(path, "w", encoding="utf-8") as file:
    file.write(text)
