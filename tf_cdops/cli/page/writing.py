"""Writes an explanation as one page of HTML that needs nothing else."""

import html as html_lib

from tf_cdops import explaining
from tf_cdops.explaining import schedule
from tf_cdops.cli.page import chart
from tf_cdops.cli.page import drawing
from tf_cdops.cli.page import style
from tf_cdops.cli.page import tables
from tf_cdops.explaining import parts
from tf_cdops.explaining import wording
from tf_cdops.planning import planner

_MOST_SCHEDULES = 3
_MOST_WAYS = 14
# Bars longer than this many times the middle one are cut.
_CUT = 2
_text = html_lib.escape
_bytes = wording.format_bytes
_seconds = wording.format_duration


def html(e: explaining.Explanation, load: str,
         bucket: planner.Bucket) -> str:
  """Returns the page; `bucket`'s schedule is drawn first."""
  title = f"all_reduce_spec {e.total.spec}"
  return "\n".join([
      "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
      '<meta name="viewport" content="width=device-width, initial-scale=1">',
      f"<title>{_text(title)}</title><style>{style.CSS}</style></head>",
      "<body><main>", _header(e, load), _sizes(e), _plan(e), _ways(e),
      _schedules(e, bucket), _rules(e), "</main></body></html>", ""])


def _header(e: explaining.Explanation, load: str) -> str:
  several = len(e.topology.workers) > 1
  cards = [
      ("predicted", _seconds(e.total.time.total),
       f"mostly spent on {e.total.time.dominant_term}"),
      ("lower bound", _seconds(e.least.total),
       wording.compare_with_bound(e, "the prediction")),
      ("moved inside workers", _bytes(e.total.inside),
       wording.format_link(e.network.inside))]
  if several:
    cards.append(("moved between workers", _bytes(e.total.across),
                  wording.format_link(e.network.across)))
  return (
      f"<h1><code>{_text(e.total.spec)}</code></h1>"
      f"<p class='lead'>{_text(wording.describe_devices(e))} all-reduce "
      f"{len(e.sizes):,} tensor{'s' * (len(e.sizes) != 1)} of {_text(load)}, "
      f"{_bytes(e.num_bytes)} on each replica.</p><div class='cards'>"
      + "".join(f"<div><span>{_text(name)}</span><b>{_text(value)}</b>"
                f"<small>{_text(note)}</small></div>"
                for name, value, note in cards) + "</div>")


def _sizes(e: explaining.Explanation) -> str:
  drawn = chart.Chart(e)
  return ("<section><h2>Which size goes which way</h2>"
          f"{drawn.svg()}{drawn.legend()}</section>")


def _plan(e: explaining.Explanation) -> str:
  several = len(e.topology.workers) > 1
  heads = ["algorithm", "shards", "tensors", "buckets", "bytes", "steps",
           "moved inside", *["moved between"] * several, "time", "why"]
  rows = []
  for part in e.parts:
    sent = f"{part.buckets:,}" + " packed" * part.packed
    rows.append([
        part.algorithm, str(part.shards), f"{len(part.tensors):,}", sent,
        _bytes(part.num_bytes), f"{part.steps:,}", _bytes(part.inside),
        *[_bytes(part.across)] * several, _seconds(part.time.total),
        f"{part.why}.{wording.describe_basis(part.basis)}"])
  overlap = f" {wording.OVERLAP}" if len(rows) > 1 else ""
  return (f"<section><h2>The plan</h2>{tables.table(heads, rows)}"
          "<p class='note'>In the order in which it is sent. Times are "
          f"predicted, to compare ways with.{overlap}</p></section>")


def _ways(e: explaining.Explanation) -> str:
  ways = sorted([e.total, *e.others], key=lambda way: way.time.total)
  shown = ways[:_MOST_WAYS]
  if e.total not in shown:
    shown[-1] = e.total
  middle = shown[len(shown) // 2].time.total
  longest = max(min(shown[-1].time.total, middle * _CUT), e.total.time.total)
  rows = "".join(_way(way, longest, way is e.total) for way in shown)
  kinds = [("latency", "waiting for steps"), ("within", "links inside")]
  if len(e.topology.workers) > 1:
    kinds.append(("between", "links between workers"))
  keys = "".join(f'<span class="key"><i class="{kind}"></i>{words}</span>'
                 for kind, words in kinds)
  return ("<section><h2>The same tensors by other ways</h2>"
          f"<div class='ways'>{rows}</div><p class='legend'>{keys}</p>"
          "</section>")


def _way(way: parts.SpecCost, longest: float, own: bool) -> str:
  time = way.time
  bars, left = "", 100.0
  for kind, spent in (("latency", time.latency), ("within", time.inside),
                      ("between", time.across)):
    share = min(left, 100 * spent / longest if longest else 0)
    left -= share
    bars += f'<i class="{kind}" style="width:{share:.2f}%"></i>'
  cut = " cut" if time.total > longest * 1.03 else ""
  unsure = "" if way.basis in ("exact", "traced") else f" ({way.basis})"
  return (f"<div class='way{' own' * own}'><code>{_text(way.spec)}</code>"
          f"<div class='bar{cut}'>{bars}</div>"
          f"<span>{_seconds(time.total)}{unsure}</span></div>")


def _schedules(e: explaining.Explanation, bucket: planner.Bucket) -> str:
  firsts = {(bucket.algorithm, bucket.shards): bucket}
  for other in e.plan.buckets:
    firsts.setdefault((other.algorithm, other.shards), other)
  drawn = []
  for one in list(firsts.values())[:_MOST_SCHEDULES]:
    steps = schedule.for_bucket(one, e.topology)
    note = (f" Drawn for {steps.devices} devices and {steps.shards} "
            f"shard{'s' * (steps.shards > 1)}, fewer than there are."
            if steps.stands_in else "")
    drawn.append(
        f"<section><h2>How <code>{_text(one.algorithm)}</code> moves it</h2>"
        "<p class='note'>Each bar is a vector on a device; its parts are "
        "coloured by how many replicas they already sum."
        f"{note}</p>{drawing.legend(steps)}{drawing.svg(steps)}"
        "</section>")
  return "".join(drawn)


def _rules(e: explaining.Explanation) -> str:
  if not e.rules:
    return ""
  rows = [[rule.where, "any size" if rule.limit is None
           else f"up to {_bytes(rule.limit)}", rule.algorithm,
           "yes" if rule.pack else "no", rule.why] for rule in e.rules]
  heads = ["where", "tensors", "algorithm", "packed", "why"]
  return ("<section><h2>The rules of auto</h2>"
          f"{tables.table(heads, rows)}<p class='note'>The first that fits is "
          "taken.</p></section>")
