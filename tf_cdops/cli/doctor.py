"""Looks at this installation and says what works on it, and what to do.

Shows the versions, the devices and the optional parts, and tries each
registered algorithm on the devices here, in a process of its own and under a
time limit: whatever TensorFlow does there, this program ends. Every result is
compared with the exact sum. An algorithm that these devices can't run, such as
nccl without GPUs, is no fault; one that fails, hangs or is wrong is. So is a
TF_CONFIG that isn't well-formed; the tasks that it names aren't asked, and the
algorithms are tried without it. Likewise it tries, on two devices of this CPU,
what Keras documents and some of its versions can't do with several replicas,
and says what of tf_cdops.keras to use where Keras fails.

With --workers or --cluster it measures the links, too: tensors that TensorFlow
sends from each worker to each other (to some others where there are more than
eight), and between two devices of one worker. It shows latency and bandwidth,
names what is slow, and --out writes them for explain:

    tf_cdops doctor --cluster=10.0.0.5:2222,10.0.0.6:2222 --out=links.json
    tf_cdops explain --workers=2 --devices=4 --network=@links.json

With --task it looks, within seconds and in place of all that, at a cluster of
one program a worker before the programs start: is this machine's port free, and
do the other hosts answer? The cluster is that of --cluster or TF_CONFIG:

    tf_cdops doctor --cluster=10.0.0.5:2222,10.0.0.6:2222 --task=0
"""

import argparse

from tf_cdops.base import errors
from tf_cdops.cli import keras_gaps
from tf_cdops.cli import links_report
from tf_cdops.cli import meeting
from tf_cdops.cli import output
from tf_cdops.cli import site_flags
from tf_cdops.cli import trial_process

NAME = "doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
  site_flags.add_arguments(parser)
  parser.add_argument(
      "--limit", type=float, default=20.0, metavar="SECONDS",
      help="how long one algorithm, or trial of Keras, may take (default: "
           "20)")
  parser.add_argument(
      "--out", metavar="FILE",
      help="also write the links between workers, as JSON, which explain "
           "--network=@FILE reads")
  parser.add_argument(
      "--task", metavar="N", nargs="?", const=meeting.TF_CONFIG,
      help="only look whether the programs of a cluster can start; N is this "
           "machine's worker, from 0 (default: TF_CONFIG's task)")


def run(args: argparse.Namespace) -> int:
  """Examines; returns 1 if something that should work doesn't."""
  _check(args)
  if args.task is not None:
    return meeting.run(args)
  found = trial_process.examine(args, args.limit)
  ok = all(trial.ok for trial in found.trials) and (
      found.facts is None or found.facts["tf_config"]["ok"])
  links = links_report.content(found.links) if found.links else None
  gaps = None
  if found.facts and not (args.cluster or args.workers):
    gaps = keras_gaps.examine(args.limit)
    ok = ok and keras_gaps.is_mended(gaps)
  if args.json:
    output.print_json({"ok": ok, "facts": found.facts,
                       "trials": [trial.to_dict() for trial in found.trials],
                       "links": links, "keras": gaps})
  else:
    _print(found)
    if gaps:
      keras_gaps.show(gaps)
    print("All that should work here works." if ok else
          "Something that should work here doesn't: see above.")
  if args.out is not None and links is not None:
    output.write_json(args.out, links)
  return 0 if ok else 1


def _check(args: argparse.Namespace) -> None:
  site_flags.check(args)
  if not 0 < args.limit <= 3600:
    raise errors.InputError(
        f"`--limit` ({args.limit:g}) must be above 0 and at most 3600 seconds.")
  if args.task is not None and (args.workers or args.out is not None):
    raise errors.InputError(
        f"`--task` ({args.task}) must come without --workers and --out: it is "
        "for a cluster whose programs don't run yet; leave them out.")
  if args.out is not None:
    if args.cluster is None and not args.workers:
      raise errors.InputError(
          f"`--out` ({args.out!r}) must come with --cluster or --workers: it "
          "is for the links between workers; give one, or use --json.")
    output.check_writable(args.out, "--out")


def _print(found: trial_process.Findings) -> None:
  facts = found.facts
  if facts:
    alive = {trial.name: trial.outcome
             for trial in found.trials}.get("collective")
    output.table("this installation", ("part", "here"), [
        *facts["rows"].items(), ("collective ops", alive or "not tried")])
  output.table(
      f"all-reduce among {facts['site'] if facts else 'the devices here'}",
      ("algorithm", "outcome", "why, and what to do"),
      [(trial.name, trial.outcome, trial.detail) for trial in found.trials
       if trial.name != trial_process.LINKS or not trial.ok])
  if found.links:
    links_report.show(found.links)
