"""What a wire does to a plan's messages, for people."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_cdops.explaining import explanation


def percent(part: float) -> str:
  """Returns a part in two digits, and no less than it is."""
  return f"{rounded_up(100 * part):g}%"


def rounded_up(number: float) -> float:
  """Returns a number of two digits that is as large or larger."""
  if not number:
    return 0.0
  unit = 10.0**(math.floor(math.log10(number)) - 1)
  return math.ceil(number / unit) * unit


def about_wire(e: "explanation.Explanation") -> list[str]:
  """Says what a wire does, and what it may change, or why it does nothing."""
  if e.wire is None:
    return []
  codec, lines = e.wire.codec, []
  for part in e.parts:
    if part.wire is None:
      continue
    bound = "in as many roundings as there are steps"
    if part.roundings is not None:
      bound = (f"{part.roundings} roundings at most, so within "
               f"{percent(codec.bound(part.roundings))} of the sum of "
               f"{codec.unit_of}")
      floor = codec.floor(part.roundings, len(e.topology.devices))
      if floor:
        bound += f" and {rounded_up(floor):g}"
      if codec.has_feedback:
        bound += "; classes add what is lost in the next step"
    lines.append(f"{part.algorithm}: messages are {part.wire}; {bound}.")
  if lines and all(part.wire for part in e.parts):
    return lines
  dtypes = {e.sizes[i].dtype for part in e.parts if part.wire is None
            for i in part.tensors}
  unfit = sorted(dtypes - codec.dtypes)
  if unfit:
    lines.append(f"{' and '.join(unfit)} travel as they are: {codec.name} "
                 f"takes {', '.join(sorted(codec.dtypes))}.")
  if dtypes & codec.dtypes and e.plan.is_pinned:
    lines.append("The pinned plan has no wire.")
  elif dtypes & codec.dtypes:
    lines.append(
        f"The wire {e.wire} doesn't pay here: it is predicted to be slower."
        if len(e.topology.workers) > 1 or e.wire.scope == "all" else
        f"The wire {e.wire} has nothing to do: there is one worker; "
        "wire_scope='all' is for links inside it.")
  return lines
