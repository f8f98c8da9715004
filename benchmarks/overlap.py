"""Measures how much communication a step of training doesn't hide.

    python -m benchmarks.overlap [--cells=REGEX] [--rounds=5]

Four hosts with cables, and equal shares of the processors, train nets with a
real backward pass, driven by one client: with "auto"; with "auto" that is told
how long the backward pass takes; with the plans of "auto" before it cut packs
for one (overlap_before.json); and with every tensor by itself. What isn't
hidden is what a step takes beyond the same step without an all-reduce.
Contenders take turns, step by step.

It writes OVERLAP.md and overlap.json, cell by cell, and goes on where it was
stopped; `--fresh` measures again.
"""

import dataclasses
import datetime
import functools
import itertools
import pathlib
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import groups as groups_lib
from benchmarks import processors
from benchmarks import resuming
from benchmarks import verdicts

from tf_cdops.cli import output
from tf_cdops.explaining import text_table

_RESULTS, _REPORT = "overlap.json", "OVERLAP.md"
_BEFORE_FILE = pathlib.Path(__file__).with_name("overlap_before.json")
_HOSTS = 4
ALONE, SUMS, SINGLY, BEFORE, AUTO, TOLD, LEAST = (
    "no all-reduce", "all-reduce alone", "one by one", "as before", "auto",
    "auto, told", "at best")
_TRAINED = SINGLY, BEFORE, AUTO, TOLD
# The part of a step in which the backward pass is, if it computes twice what
# the forward pass does.
_BACKWARD = 2 / 3
_LIMIT, _STEP_LIMIT = 0.6, 1.15


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
  """One net, with so many examples a host, on cables of a rate."""

  net: str
  rate: str
  batch: int

  def __str__(self) -> str:
    return f"{self.net}/{self.rate}/{self.batch}"


@dataclasses.dataclass(frozen=True)
class Measured:
  """A cell's outcome: the seconds of each round, by contender."""

  cell: Cell
  date: str
  plans: dict[str, str]
  seconds: dict[str, list[float]]

  def steps(self, name: str) -> list[float]:
    """Returns the seconds of steps; at best, those that none can beat.

    There is nothing to send before the backward pass.
    """
    if name != LEAST:
      return self.seconds[name]
    return [max(alone, (1 - _BACKWARD) * alone + sums) for alone, sums in zip(
        self.seconds[ALONE], self.seconds[SUMS], strict=True)]

  def unhidden(self, name: str) -> list[float]:
    return [step - alone for step, alone in zip(
        self.steps(name), self.seconds[ALONE], strict=True)]

  def ratios(self, name: str, rival: str) -> list[float]:
    """Returns what isn't hidden, of what isn't by a rival, round by round."""
    return [now / before for now, before in zip(
        self.unhidden(name), self.unhidden(rival), strict=True)]

  def of_longest(self, name: str) -> list[float]:
    """Returns a step by the longer of computing and communication."""
    return [step / max(alone, sums) for step, alone, sums in zip(
        self.steps(name), self.seconds[ALONE], self.seconds[SUMS],
        strict=True)]

  def to_dict(self) -> dict[str, Any]:
    return dataclasses.asdict(self)

  @classmethod
  def from_dict(cls, content: dict[str, Any]) -> "Measured":
    return cls(Cell(**content["cell"]), content["date"], content["plans"],
               content["seconds"])


# Small batches with which little can be hidden, and large ones with which
# computing takes 1.5 to 2 times as long as communication and can hide it.
CELLS = (Cell("resnet50", "200mbit", 8), Cell("resnet50", "200mbit", 96),
         Cell("embedding", "200mbit", 512), Cell("embedding", "200mbit", 9216))


def main() -> int:
  parser = resuming.parser(__doc__, _RESULTS, "resnet50/200mbit")
  parser.add_argument("--rounds", type=int, default=5)
  args = parser.parse_args()
  folder = resuming.check(parser, args, _RESULTS)
  content = resuming.read(folder / _RESULTS)
  if not args.report_only:
    if not resuming.enter_network():
      return 2
    content = {"command": "python -m benchmarks.overlap",
               **resuming.kept(content, Cell, CELLS)}
    for cell in resuming.wanted(args, content, Cell, CELLS):
      measured = measure(cell, args.rounds)
      resuming.keep(content, measured)
      output.write_json(str(folder / _RESULTS), content)
      print(brief(measured), flush=True)
  output.write_text(str(folder / _REPORT), report(content))
  return 0


def measure(cell: Cell, rounds: int) -> Measured:
  """Measures a cell, with workers of its own."""
  # Not earlier: TensorFlow has threads, with which no network can be entered.
  from benchmarks import replicas
  import tf_cdops

  with processors.Shares(_HOSTS) as shares, tf_cdops.LocalCluster(
      _HOSTS, bandwidth=cell.rate, timeout=180) as cluster:
    for host in range(_HOSTS):
      shares.give(host, cluster.pid(host))
    trained = replicas.Replicas(cluster, cell.net, cell.batch)
    # A text has few words often, and SGD doesn't mind their slices' sums.
    make = functools.partial(tf_cdops.MultiWorkerAllReduce,
                             network=cluster.link, sparse="deduplicate")
    alone = trained.step(None)
    alone()
    computing = replicas.seconds_of(alone)
    ops = {SINGLY: make(all_reduce_spec="xring"),
           BEFORE: make(all_reduce_spec=f"@{_BEFORE_FILE}"),
           AUTO: make(all_reduce_spec="auto"),
           TOLD: make(all_reduce_spec="auto",
                      backward_seconds=_BACKWARD * computing)}
    turns: dict[str, Callable[[], None]] = {
        ALONE: alone, SUMS: trained.all_reduce(ops[AUTO])}
    turns |= {name: trained.step(one) for name, one in ops.items()}
    for turn in turns.values():  # The first time, functions are traced.
      turn()
    timed = list(itertools.islice(groups_lib.interleaved(
        {name: functools.partial(replicas.seconds_of, turn)
         for name, turn in turns.items()}), rounds))
    del turns, alone
  return Measured(
      cell, datetime.datetime.now(datetime.timezone.utc).strftime(
          "%Y-%m-%d %H:%M UTC"),
      {name: trained.plan_of(one) for name, one in ops.items()},
      {name: [row[name] for row in timed] for name in timed[0]})


def brief(measured: Measured) -> str:
  """Returns a few words about a cell."""
  return f"{measured.cell}: " + ", ".join(
      f"{name} {statistics.median(seconds) * 1e3:.0f} ms"
      for name, seconds in measured.seconds.items())


def report(content: dict[str, Any]) -> str:
  """Returns OVERLAP.md."""
  measured = sorted(map(Measured.from_dict, content["cells"]),
                    key=lambda one: CELLS.index(one.cell))
  times, judged, plans = [], [], []
  for one in measured:
    times.append((one.cell, *(
        f"{statistics.median(one.seconds[name]) * 1e3:.0f}"
        for name in (ALONE, SUMS, *_TRAINED))))
    for name in (LEAST, AUTO, TOLD):
      singly = statistics.median(one.ratios(name, SINGLY))
      judged.append((one.cell, name, f"{singly:.2f}",
                     *_judged(one.ratios(name, BEFORE), _LIMIT),
                     *_judged(one.of_longest(name), _STEP_LIMIT)))
    plans += [(one.cell, name, plan) for name, plan in one.plans.items()]
  return "\n\n".join([
      "# Communication that hides behind computing",
      f"`{content['command']}`. {__doc__.split(chr(10) * 2)[2]}",
      resuming.machine_table(content),
      *(f"Note: {note}" for note in content["notes"]),
      "## Steps, in ms (medians)",
      text_table.markdown(("cell", *(f">{name}" for name in (
          ALONE, SUMS, *_TRAINED))), times),
      "## Ratios\n\nWhat isn't hidden, of what isn't tensor by tensor, and "
      "with the plans of before; and a step, of the longer of computing and of "
      "the all-reduce. Medians of rounds, and between which the median is, "
      "with a confidence of 95%, or of few rounds all are. At best: what no "
      "all-reduce can beat that takes this time by itself, if a third of "
      "computing is the forward pass, in which there is nothing to send.",
      text_table.markdown(
          ("cell", "", ">of one by one", ">of before", ">between",
           f">≤ {_LIMIT:g}", ">of the longer", ">between",
           f">≤ {_STEP_LIMIT:g}"), judged),
      "## Plans", text_table.markdown(("cell", "", "MB sent, in order"),
                                      plans)]) + "\n"


def _judged(ratios: Sequence[float], limit: float) -> tuple[str, str, str]:
  low, high = verdicts.interval(ratios)
  return (f"{statistics.median(ratios):.2f}", f"{low:.2f} and {high:.2f}",
          "yes" if low <= limit else "**no**")


if __name__ == "__main__":
  sys.exit(main())
