"""What commands share in printing: tables, JSON, progress and output files."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tf_cdops.base import errors
from tf_cdops.base import output_files

check_writable = output_files.check_writable

# Wider than any table: output that goes to a file or a pipe isn't cut.
_UNCUT = 10_000
# Of text for people, where nothing tells how wide it may be.
_WIDTH, _LEAST_WIDTH = 100, 60
# In JSON with indents, a list of numbers has each on a line of its own.
_NUMBERS = re.compile(r"\[\n\s+([-+.\deE]+(?:,\n\s+[-+.\deE]+)*)\n\s+\]")


def check_files(args: argparse.Namespace, *flags: str) -> None:
  """Raises if a file that a flag names can't be written, or two are one."""
  named: dict[str, str] = {}
  for flag in flags:
    path = getattr(args, flag)
    if path is None:
      continue
    check_writable(path, f"--{flag}")
    other = named.setdefault(os.path.realpath(path), flag)
    if other != flag:
      raise errors.InputError(
          f"`--{flag}` ({path!r}) must be another file than that of "
          f"`--{other}`.")


def width() -> int:
  """Returns how many columns text may have: the terminal's, up to 100."""
  columns = shutil.get_terminal_size((_WIDTH, 24)).columns
  return max(_LEAST_WIDTH, min(_WIDTH, columns))


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
  text = json.dumps(content, indent=2, ensure_ascii=False)
  return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)


def brief(error: Exception) -> str:
  """Returns the line of TensorFlow's message that has the reason: the last."""
  lines = [line.strip() for line in str(error).splitlines()]
  said = [line for line in lines if line and not line.startswith("[[")]
  return said[-1] if said else type(error).__name__


def table(title: str, columns: Sequence[str],
          rows: Iterable[Sequence[object]], wrap: int | None = None) -> None:
  """Prints a table on standard output.

  Args:
    title: stands above it.
    columns: the headings; one that begins with ">" is aligned to the right.
    rows: the cells, printed as `str` gives them, with no markup.
    wrap: the most columns of text; if None, the terminal's, and any number
      where that is none.
  """
  import rich.console
  import rich.table
  import rich.text
  console = rich.console.Console(
      width=wrap or (None if sys.stdout.isatty() else _UNCUT))
  grid = rich.table.Table(show_lines=wrap is not None)
  cells = [[rich.text.Text(str(cell)) for cell in row] for row in rows]
  for i, column in enumerate(columns):
    # A name that is broken can't be copied; but in 60 columns all break.
    names = [len(row[i]) for row in cells] if i == 0 and wrap == _WIDTH else []
    grid.add_column(rich.text.Text(column.removeprefix(">")), overflow="fold",
                    justify="right" if column.startswith(">") else "left",
                    min_width=max(names, default=0))
  for row in cells:
    grid.add_row(*row)
  with console.capture() as drawn:
    console.print(rich.text.Text(title, style="bold"), soft_wrap=True)
    console.print(grid)
  # Not by rich: it would end the program if the reader has seen enough.
  print(drawn.get(), end="")


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
