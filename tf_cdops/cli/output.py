"""What commands share in printing: tables, JSON, progress and output files."""

import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tf_cdops import errors

# Wider than any table: output that goes to a file or a pipe isn't cut.
_UNCUT = 10_000


def check_writable(path: str, flag: str) -> None:
  """Raises if a file can't be written; it is neither made nor emptied.

  Args:
    path: the file that a command will write when its work is done.
    flag: what named it, such as "--out", for the error.
  """
  where = f"`{flag}` ({path!r})"
  if not path or os.path.isdir(path):
    raise errors.InputError(f"{where} must name a file, not a folder.")
  folder = os.path.dirname(path) or "."
  if not os.path.isdir(folder):
    raise errors.InputError(
        f"{where} must be in a folder that is there; make {folder} first.")
  target = path if os.path.exists(path) else folder
  if not os.access(target, os.W_OK):
    raise errors.InputError(
        f"{where} must be writable, and {target} isn't; name another file.")


def write_text(path: str, text: str) -> None:
  """Writes a file that `check_writable` has looked at."""
  try:
    pathlib.Path(path).write_text(text, encoding="utf-8")
  except OSError as error:
    raise errors.InputError(
        f"the file ({path!r}) must be writable: {error.strerror}.") from None


def write_json(path: str, content: dict[str, Any]) -> None:
  """Writes a dict as a JSON file."""
  write_text(path, _json(content) + "\n")


def print_json(content: dict[str, Any]) -> None:
  """Prints a dict as JSON on standard output."""
  print(_json(content))


def _json(content: dict[str, Any]) -> str:
  return json.dumps(content, indent=2, ensure_ascii=False)


def table(title: str, columns: Sequence[str],
          rows: Iterable[Sequence[object]]) -> None:
  """Prints a table on standard output.

  Args:
    title: stands above it.
    columns: the headings; one that begins with ">" is aligned to the right.
    rows: the cells, printed as `str` gives them, with no markup.
  """
  import rich.console
  import rich.table
  import rich.text
  console = rich.console.Console(
      width=None if sys.stdout.isatty() else _UNCUT)
  grid = rich.table.Table(title=rich.text.Text(title, style="bold"),
                          title_justify="left")
  for column in columns:
    grid.add_column(rich.text.Text(column.removeprefix(">")), overflow="fold",
                    justify="right" if column.startswith(">") else "left")
  for row in rows:
    grid.add_row(*(rich.text.Text(str(cell)) for cell in row))
  console.print(grid)


@contextlib.contextmanager
def progress(description: str, total: int) -> Iterator[Callable[..., None]]:
  """Draws a progress bar on standard error, if that is a terminal.

      with output.progress("measuring", total=3) as advance:
        for name in ("xring", "ps", "rechd"):
          advance(description=f"measured {name}")

  Args:
    description: what is going on.
    total: how many steps there are.

  Yields:
    A function to call after each step, or with the number of steps; it can
    change the description.
  """
  import rich.console
  import rich.progress
  bar = rich.progress.Progress(
      console=rich.console.Console(stderr=True), transient=True,
      disable=not sys.stderr.isatty())
  with bar:
    task = bar.add_task(description, total=total)

    def advance(steps: float = 1, description: str | None = None) -> None:
      bar.update(task, advance=steps, description=description)

    yield advance
