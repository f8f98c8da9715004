"""Prints a timeline's summary, and writes its page."""

import sys

from tf_cdops.cli import output
from tf_cdops.cli.page import timeline as page
from tf_cdops.explaining.timeline import summary as summary_lib
from tf_cdops.explaining.timeline import trace as trace_lib
from tf_cdops.explaining.timeline import wording


def report(trace: trace_lib.Trace, path: str, html: str | None, as_json: bool,
           title: str) -> int:
  """Reports a trace that is written already; returns 1 if it has no step.

  Args:
    trace: what happened.
    path: where it was written.
    html: where to write a page, if anywhere.
    as_json: whether to print the figures as JSON.
    title: the page's.
  """
  if not trace.steps:
    print(f"No whole step was seen; {path} has none.", file=sys.stderr)
    return 1
  summary = summary_lib.summarize(trace)
  if html is not None:
    output.write_text(html, page.html(trace, summary, title))
  if as_json:
    output.print_json({"file": path, **wording.to_dict(trace, summary)})
    return 0
  print(wording.report(trace, summary, output.width()))
  print(f"\nWritten to {path}; https://ui.perfetto.dev opens it.")
  return 0
