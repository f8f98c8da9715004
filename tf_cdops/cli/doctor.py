"""Looks at this installation and says what works on it, and what to do.

Shows the versions, the devices and the optional parts, and tries each
registered algorithm on the devices here, in a process of its own and under a
time limit: whatever TensorFlow does there, this program ends. Every result is
compared with the exact sum. An algorithm that these devices can't run, such as
nccl without GPUs, is no fault; one that fails, hangs or is wrong is. So is a
TF_CONFIG that isn't well-formed; the tasks that it names aren't asked, and the
algorithms are tried without it.
"""

import argparse

from tf_cdops.base import errors
from tf_cdops.cli import output
from tf_cdops.cli import site_flags
from tf_cdops.cli import trial_process

NAME = "doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
  site_flags.add_arguments(parser)
  parser.add_argument(
      "--limit", type=float, default=20.0, metavar="SECONDS",
      help="how long one algorithm may take (default: 20)")


def run(args: argparse.Namespace) -> int:
  """Examines; returns 1 if something that should work doesn't."""
  site_flags.check(args)
  if not 0 < args.limit <= 3600:
    raise errors.InputError(
        f"`--limit` ({args.limit:g}) must be above 0 and at most 3600 seconds.")
  facts, trials = trial_process.examine(args, args.limit)
  ok = all(trial.ok for trial in trials) and (
      facts is None or facts["tf_config"]["ok"])
  if args.json:
    output.print_json({"ok": ok, "facts": facts,
                       "trials": [trial.to_dict() for trial in trials]})
    return 0 if ok else 1
  if facts:
    alive = {trial.name: trial.outcome for trial in trials}.get("collective")
    output.table("this installation", ("part", "here"), [
        *facts["rows"].items(), ("collective ops", alive or "not tried")])
  output.table(
      f"all-reduce among {facts['site'] if facts else 'the devices here'}",
      ("algorithm", "outcome", "why, and what to do"),
      [(trial.name, trial.outcome, trial.detail) for trial in trials])
  print("All that should work here works." if ok else
        "Something that should work here doesn't: see above.")
  return 0 if ok else 1
