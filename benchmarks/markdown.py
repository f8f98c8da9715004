"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
  """Returns a table.

  Args:
    columns: the headings; one that begins with ">" is aligned to the right.
    rows: the cells, as `str` gives them.
  """
  lines = [_line(column.removeprefix(">") for column in columns),
           _line("---:" if column.startswith(">") else "---"
                 for column in columns)]
  lines += [_line(map(str, row)) for row in rows]
  return "\n".join(lines)


def _line(fields: Iterable[str]) -> str:
  return "| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |"
