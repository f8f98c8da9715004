"""One sentence of advice, with the figure behind it."""

from tf_cdops.explaining import wording as units
from tf_cdops.explaining.timeline import summary as summary_lib
from tf_cdops.explaining.timeline import trace as trace_lib

# Shares of the step from which something is worth a word.
_LATE, _EXPOSED, _SAVED, _IDLE = 0.2, 0.1, 0.05, 0.3
_seconds = units.format_duration


def advise(trace: trace_lib.Trace, summary: summary_lib.Summary) -> str:
  """Returns what would help most."""
  step = summary.step
  late = summary.late
  if late is not None and late.cost >= _LATE * step and not late.takes_turns:
    return _about_replica(late, step)
  if summary.exposed >= _EXPOSED * step:
    return _about_communication(trace, summary)
  idle = step - summary.computing - summary.exposed
  if idle >= _IDLE * step:
    return (f"For {_seconds(idle)} of a step of {_seconds(step)} nothing is "
            "computed or sent: look at the input, or let steps_per_execution "
            "do several steps a call.")
  return (f"Communication is hidden but for {_seconds(summary.exposed)} of a "
          f"step of {_seconds(step)}: to be faster, compute less, or with "
          "more.")


def _about_replica(late: summary_lib.Late, step: float) -> str:
  who = f"Replica {late.replica} ({trace_lib.short_name(late.device)})"
  if late.extra >= late.by / 2:
    return (f"{who} is late by {_seconds(late.cost)} of a step of "
            f"{_seconds(step)}: it had {_seconds(late.extra)} more to do than "
            "the others, which wait for it. Look at its share of the batch, "
            "and at what only it computes.")
  return (f"{who} is late by {_seconds(late.by)} of a step of "
          f"{_seconds(step)}, and had no more to do than the others, which "
          "wait for it. Look at its input, and at what else its machine does.")


def _about_communication(trace: trace_lib.Trace,
                         summary: summary_lib.Summary) -> str:
  exposed = (f"{_seconds(summary.exposed)} of a step of "
             f"{_seconds(summary.step)} are communication that nothing hides")
  best = min(trace.savings, key=lambda one: one.ratio, default=None)
  # What hides already isn't saved.
  saved = summary.exposed * (1 - best.ratio) if best else 0.0
  if best is not None and saved >= _SAVED * summary.step:
    return (f"{best.change} would save about {_seconds(saved)}: {exposed}, and "
            f"it is predicted to take {best.ratio:.0%} of the time.")
  worst = summary.worst
  if worst is None:
    return f"{exposed[0].upper()}{exposed[1:]}."
  return (f"{exposed[0].upper()}{exposed[1:]}, most of them "
          f"({_seconds(worst.exposed)}) for {worst.bucket.label}; a larger "
          "batch would give it more to hide behind.")
