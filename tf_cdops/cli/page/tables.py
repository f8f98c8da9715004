"""Tables of the pages."""

import html as html_lib
from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Columns whose first cell begins with a digit are numbers."""
  numbers = [cell[:1].isdigit() for cell in rows[0]]
  cells = lambda tag, row: "".join(
      f"<{tag}{' class=n' * number}>{html_lib.escape(cell)}</{tag}>"
      for cell, number in zip(row, numbers, strict=True))
  body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
  return (f"<div class='scroll'><table><thead><tr>{cells('th', heads)}</tr>"
          f"</thead><tbody>{body}</tbody></table></div>")
