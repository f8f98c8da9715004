"""Finds the all-reduce spec that is quickest on these devices.

Tries algorithms, shards and packing on the sizes that you have (those of a
model's gradients, say), drops the hopeless early, and puts the best for each
size together. The outcome then runs against "auto", in pairs, on the whole
load: it is recommended only if it is surely quicker, by 5% or more. Otherwise
the advice is to keep "auto".

Between workers (--workers, --cluster) the links are measured first, as `doctor`
does it, in a fifth of the time and at most 12 s; "auto" then chooses by them.

    tf_cdops tune --devices=8 --model=ResNet50 --budget=2m
    tf_cdops tune --cluster=10.0.0.5:2222,10.0.0.6:2222 --model=ResNet50
    tf_cdops tune --workers=4 --bandwidth=200mbit --wire=bfloat16,int8
    python train.py --all_reduce_spec=@tf_cdops_tuned.json

The file has the packing and the links that were measured, too, and whoever
reads it packs so, and lets "auto" choose by these links. A spec's text has no
packing: the flags for it are printed as well.

A wire rounds, so that none is tried unless --wire allows it. "auto" with each
of those runs against the best without, and what surely pays is recommended: the
file then has the wire, too.
"""

import argparse
import dataclasses
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.cli import links_report
from tf_cdops.cli import loads
from tf_cdops.cli import output
from tf_cdops.cli import site_flags
from tf_cdops.cli import wire_flags
from tf_cdops.cli.measuring import tuning
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib
from tf_cdops.planning import spec_file

if TYPE_CHECKING:
  from tf_cdops.cli.measuring import sites
  from tf_cdops.cli.measuring import tuner

NAME = "tune"
_LEAST_BUDGET = 5.0
_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|)", re.IGNORECASE)
_FAR_BEYOND = 1.5
_SHOWN = 5  # Candidates in the table, for each class; JSON has them all.


def add_arguments(parser: argparse.ArgumentParser) -> None:
  site_flags.add_arguments(parser)
  loads.add_arguments(parser)
  parser.add_argument(
      "--budget", default="60s", metavar="TIME",
      help="how long to measure: 90, 90s, 2m (default: 60s; least: 5s)")
  wire_flags.add_arguments(parser, "which may be recommended")
  parser.add_argument(
      "--out", default="tf_cdops_tuned.json", metavar="FILE",
      help="what --all_reduce_spec=@FILE will read (default: "
           "tf_cdops_tuned.json)")


def run(args: argparse.Namespace) -> int:
  """Tunes, prints the advice and writes the file; 1 if a sum was wrong."""
  budget = _parse_budget(args.budget)
  site_flags.check(args)
  output.check_writable(args.out, "--out")
  with site_flags.opened(args) as site:
    if len(site.devices) < 2:
      raise errors.InputError(
          "`--devices` (1) must be at least 2: one device has nothing to "
          "reduce.")
    wires = tuple(wire for wire in wire_flags.parse(args) if wire)
    load = loads.from_args(args)
    started = time.monotonic()
    outcome = _tune(site, load, budget, wires)
    seconds = time.monotonic() - started
  content = _content(site, load, outcome)
  if args.json:
    output.print_json(content)
  else:
    _print(outcome, f"{load.name} on {site}", args.out)
    if seconds > _FAR_BEYOND * budget and not outcome.interrupted:
      print(f"It took {seconds:.0f} s, and `--budget` is {args.budget}: a few "
            "steps of each kind are run in any case, and those of this load "
            "take long. Smaller --sizes would take less.")
  if outcome.interrupted:
    return 130
  output.write_json(args.out, content)
  return 1 if outcome.race and outcome.race.wrong else 0


def _parse_budget(text: str) -> float:
  match = _BUDGET.fullmatch(text.strip())
  seconds = (float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[
      match[2].lower()] if match else 0.0)
  if seconds < _LEAST_BUDGET:
    raise errors.InputError(
        f"`--budget` ({text!r}) must be a time such as 90, 90s or 2m, of at "
        f"least {_LEAST_BUDGET:g}s.")
  return seconds


def _tune(site: "sites.Site", load: loads.Load, budget: float,
          wires: tuple[registry.Wire, ...]) -> "tuner.Outcome":
  from tf_cdops.cli.measuring import memory
  from tf_cdops.cli.measuring import tuner
  if not site.is_elsewhere:
    memory.check_fits(load.num_bytes, len(site.devices), load.name)
  started = time.monotonic()
  first = "measuring links" if len(site.topology.workers) > 1 else "tuning"
  with output.progress(first, round(budget)) as advance:
    shown = 0.0

    def show(candidate: planner.Choice) -> None:
      nonlocal shown
      now = time.monotonic() - started
      advance(now - shown, description=f"trying {candidate}")
      shown = now

    return tuner.tune(site, load.sizes, budget, show, wires)


def _content(site: "sites.Site", load: loads.Load,
             outcome: "tuner.Outcome") -> dict[str, Any]:
  """Returns what the file holds; what is read again has the flags' names."""
  race = outcome.race
  return {
      **spec_file.content(str(outcome.advice.spec), outcome.advice.packing,
                          outcome.links, wire=outcome.advice.wire),
      "devices": list(site.devices),
      "bandwidth": site.bandwidth,
      "load": {"name": load.name, "tensors": len(load.sizes),
               "num_bytes": load.num_bytes},
      "composed": {"all_reduce_spec": str(outcome.composed.spec),
                   **outcome.composed.packing.arguments()},
      "interrupted": outcome.interrupted,
      "untried": outcome.untried,
      "race": dataclasses.asdict(race) if race else None,
      "wires": [{"wire": str(trial.wire), "pays": trial.pays,
                 "race": dataclasses.asdict(trial.race) if trial.race else None}
                for trial in outcome.wires],
      "measurements": [
          {"up_to_bytes": size_class.limit, "tensors": len(size_class.tensors),
           **dataclasses.asdict(candidate), "seconds": seconds}
          for size_class, times in outcome.found.items()
          for candidate, seconds in _ranked(times)],
  }


def _print(outcome: "tuner.Outcome", title: str, path: str) -> None:
  rows: list[list[str]] = []
  for size_class, times in outcome.found.items():
    ranked = _ranked(times)
    for i, (candidate, seconds) in enumerate(ranked[:_SHOWN]):
      first = [f"{len(size_class.tensors)} up to "
               f"{spec_lib.format_bytes(size_class.limit)}"]
      rows.append([*(first if i == 0 else [""]), str(candidate),
                   f"{seconds * 1e3:.2f}", f"{seconds / ranked[0][1]:.2f}"])
    if len(ranked) > _SHOWN:
      worst = ranked[-1][1] / ranked[0][1]
      rows.append(["", f"and {len(ranked) - _SHOWN} more", "",
                   f"up to {worst:.2f}"])
  output.table(title, ("tensors", "way", ">ms", ">times the best"), rows)
  if outcome.links:
    for line in links_report.medians(outcome.links.summary()):
      print(line)
  if outcome.untried:
    print(f"There was no time to try {outcome.untried} other ways: a larger "
          "--budget tries them too.")
  for line in (*_advice(outcome, path), *_advice_on_wires(outcome, path),
               *_advice_on_links(outcome, path)):
    print(line)


def _advice(outcome: "tuner.Outcome", path: str) -> list[str]:
  """Returns what to tell the user, and how to apply it."""
  race, tried = outcome.race, _flags(outcome.composed)
  if outcome.interrupted:
    return ["Interrupted: nothing was run against auto, and no file written."]
  if race is None:
    return [f"No difference: keep auto, which does the same as {tried}."]
  verdict = race.verdict
  against = (
      f"{tried} takes {verdict.ratio:.2f} times auto's time "
      f"({_surely(verdict)}; {verdict.pairs} pairs of steps, medians "
      f"{race.composed.median * 1e3:.2f} and {race.auto.median * 1e3:.2f} "
      "ms).")
  if race.wrong:
    return [f"{race.wrong:,} elements of {tried} are WRONG. Please report it; "
            "keep auto."]
  if not verdict.better:
    slower = verdict.low is not None and verdict.low > 1
    return [f"{'Nothing beats it' if slower else 'No difference'}: keep auto.",
            against]
  return [f"Best: {outcome.composed.spec}", against,
          f"Apply it with: --all_reduce_spec=@{path}"]


def _advice_on_wires(outcome: "tuner.Outcome", path: str) -> list[str]:
  """Returns what became of each wire that was allowed."""
  lines = []
  for trial in outcome.wires:
    if trial.race is None:
      lines.append(f"The wire {trial.wire} doesn't pay here: by these links "
                   "auto would encode no message.")
      continue
    verdict = trial.race.verdict
    what = ("pays" if trial.pays else f"is WRONG in {trial.race.wrong:,} "
            "elements, please report it" if trial.race.wrong else
            "doesn't pay here")
    lines.append(f"The wire {trial.wire} {what}: {verdict.ratio:.2f} times the "
                 f"time without ({_surely(verdict)}; {verdict.pairs} pairs).")
  if outcome.advice.wire:
    lines.append(f"Best: auto with --wire={outcome.advice.wire.codec.name}. It "
                 f"is in the file: --all_reduce_spec=@{path}")
  return lines


def _advice_on_links(outcome: "tuner.Outcome", path: str) -> list[str]:
  """Returns how to let "auto", if that is the advice, know the links."""
  if (outcome.links is None or outcome.interrupted
      or not outcome.advice.spec.is_auto):
    return []
  return ["Here auto chose by the links that were measured. The file has them: "
          f"--all_reduce_spec=@{path}"]


def _surely(verdict: tuning.Verdict) -> str:
  if verdict.low is None or verdict.high is None:
    return "too few to be sure: give a larger --budget"
  return f"surely {verdict.low:.2f} to {verdict.high:.2f}"


def _flags(choice: tuning.Setting) -> str:
  """Returns a choice as the flags of tf_cdops.flags."""
  packing = choice.packing.arguments() if choice.packing.wanted else {}
  return " ".join([f"--all_reduce_spec={choice.spec}", *(
      f"--{name}={value}" for name, value in packing.items() if value)])


def _ranked(times: Mapping[planner.Choice, float]
            ) -> list[tuple[planner.Choice, float]]:
  return sorted(times.items(), key=lambda item: item[1])
