"""Draws tables as plain text, within some width, and as Markdown."""

import textwrap
from collections.abc import Iterable, Sequence

# What the last column, which is wrapped, has at least.
_LEAST_LAST = 14


def draw(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int,
         spare: Sequence[str] = ()) -> str:
  """Returns aligned columns, the last of which is wrapped.

  Args:
    columns: the headings; one that begins with ">" is at the right.
    rows: the cells.
    width: the most columns of text, if spare ones suffice for that.
    spare: headings of what may be left out for want of room, in this order.
  """
  kept = list(range(len(columns)))
  cells = [[column.removeprefix(">") for column in columns], *rows]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  for name in spare:
    if name in columns and _least(kept, widths) > width:
      kept.remove(columns.index(name))
  *before, last = kept
  room = max(_LEAST_LAST, width - sum(widths[i] + 2 for i in before))
  widths[last] = min(widths[last], room)
  cells.insert(1, ["-" * w for w in widths])
  right = [column.startswith(">") for column in columns]
  lines = []
  for row in cells:
    start = "".join(_aligned(row[i], widths[i], right[i]) + "  "
                    for i in before)
    wrapped = textwrap.wrap(row[last], room, break_long_words=False) or [""]
    for text in wrapped:
      lines.append((start + _aligned(text, widths[last], right[last])).rstrip())
      start = " " * len(start)
  return "\n".join(lines)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
  """Returns a table in Markdown of cells as `str` gives them."""
  lines = [[column.removeprefix(">") for column in columns],
           ["---:" if column.startswith(">") else "---" for column in columns],
           *rows]
  return "\n".join(
      "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |"
      for line in lines)


def _least(kept: Sequence[int], widths: Sequence[int]) -> int:
  *before, last = kept
  return sum(widths[i] + 2 for i in before) + min(widths[last], _LEAST_LAST)


def _aligned(cell: str, width: int, right: bool) -> str:
  return cell.rjust(width) if right else cell.ljust(width)
