"""What doctor says of Keras: which of its gaps this installation has."""

import textwrap
from typing import Any

from tf_cdops.cli import child_process
from tf_cdops.cli import output

_START_SECONDS = 90.0  # As doctor allows TensorFlow for its own trials.
_WIDEST = 60  # TensorFlow's text about `merge_call` fills a screen.


def examine(limit: float) -> dict[str, Any]:
  """Tries all of them in another process.

  Args:
    limit: seconds for each.

  Returns:
    The version of Keras, and what became of each, for JSON; and why some
    weren't tried, if so.
  """
  found: dict[str, Any] = {"version": None, "gaps": [], "lost": ""}
  with child_process.Child("-m", "tf_cdops.keras.gaps") as child:
    event: dict[str, Any] = {}
    current, seconds = "Keras", _START_SECONDS
    while "end" not in event:
      try:
        event = child.receive(seconds)
      except child_process.ChildError as error:
        found["lost"] = f"{current}: {error}"
        break
      found["version"] = event.get("keras", found["version"])
      current, seconds = event.get("trying", current), limit
      if "gap" in event:
        found["gaps"].append(event["gap"])
  return found


def is_mended(found: dict[str, Any]) -> bool:
  """Whether all that was tried works, with ours if not with Keras' own."""
  return not any(gap["keras"] if gap["ours"] is None else gap["ours"]
                 for gap in found["gaps"])


def show(found: dict[str, Any]) -> None:
  """Prints it as a table."""
  output.table(
      f"Keras {found['version'] or '?'} with two replicas",
      ("what was tried", "Keras' own", "tf_cdops.keras", "in its place"),
      [(gap["name"], _brief(gap["keras"]), _brief(gap["ours"]),
        gap["use"] if gap["keras"] else "not needed")
       for gap in found["gaps"]])
  if found["lost"]:
    print(f"The rest of it wasn't tried. {found['lost']}")


def _brief(fault: str | None) -> str:
  if fault is None:
    return "-"
  return textwrap.shorten(fault, _WIDEST, placeholder=" …") or "works"
