"""Runs the doctor's trials in another process, and outlives what it does."""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from tf_cdops.base import errors
from tf_cdops.cli import child_process
from tf_cdops.cli.measuring import link_results

WORKS, CANT, WRONG, FAILED, HUNG = ("works", "can't", "WRONG", "FAILED", "HUNG")
TENSORFLOW = "TensorFlow"  # The name of the trial that is its start.
LINKS = "the links"  # And of that which measures them: no algorithm's name.
_START_SECONDS = 90.0  # Loading TensorFlow from a cold disk takes its time.
_LINKS_SECONDS = 60.0  # More than measuring them allows itself.


@dataclasses.dataclass(frozen=True)
class Trial:
  """What became of one algorithm; `detail` says why and what to do."""

  name: str
  outcome: str
  detail: str = ""

  @property
  def ok(self) -> bool:
    """Whether it did what it should here."""
    return self.outcome in (WORKS, CANT)

  def to_dict(self) -> dict[str, Any]:
    return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Findings:
  """What the other process found.

  Attributes:
    facts: about this installation; None if TensorFlow didn't start.
    trials: what became of each algorithm, by name.
    links: those between workers, if they were measured.
  """

  facts: dict[str, Any] | None
  trials: list[Trial]
  links: list[link_results.LinkMeasurement]


def examine(args: argparse.Namespace, limit: float) -> Findings:
  """Tries every algorithm, and measures links where there are workers.

  A trial that hangs or crashes ends its process; another one takes over with
  the rest.

  Args:
    args: the flags of `site_flags`.
    limit: seconds for each algorithm.
  """
  facts, links = None, []
  done: dict[str, Trial] = {}
  while True:
    current, ended = TENSORFLOW, False
    for event in _events(args, limit, tuple(done)):
      if "facts" in event:
        facts = event["facts"]
      elif "refused" in event:
        raise (errors.ClusterError if event["unreachable"]
               else errors.InputError)(event["refused"])
      elif "trying" in event:
        current = event["trying"]
      elif "links" in event:
        links = [link_results.LinkMeasurement(**link)
                 for link in event["links"]]
      elif "trial" in event:
        done[current] = Trial(**event["trial"])
      elif "lost" in event:
        done[current] = Trial(current, event["lost"], event["detail"])
      else:
        ended = True
    if ended or current == TENSORFLOW:
      return Findings(
          facts, sorted(done.values(), key=lambda trial: trial.name), links)


def _events(args: argparse.Namespace, limit: float,
            skip: Sequence[str]) -> Iterator[dict[str, Any]]:
  """Yields what a new process reports, and its loss if it ends untimely."""
  with child_process.Child("-m", "tf_cdops.cli.trials", *_flags(args),
                           f"--skip={','.join(skip)}") as child:
    event: dict[str, Any] = {}
    seconds = _START_SECONDS
    while "end" not in event:
      try:
        event = child.receive(seconds)
      except child_process.LateError:
        event = {"lost": HUNG, "detail": f"no end after {seconds:g} s"}
      except child_process.ChildError as error:
        event = {"lost": FAILED, "detail": str(error)}
      yield event
      if "lost" in event:
        return
      seconds = (max(limit, _LINKS_SECONDS)
                 if event.get("trying") == LINKS else limit)


def _flags(args: argparse.Namespace) -> list[str]:
  given = {"devices": args.devices, "device_type": args.device_type,
           "workers": args.workers, "bandwidth": args.bandwidth,
           "cluster": args.cluster}
  return [f"--{name}={value}" for name, value in given.items()
          if value is not None]
