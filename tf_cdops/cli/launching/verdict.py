"""Which program's fault it is that a run has failed, in words: pure."""

import dataclasses
import signal
from collections.abc import Sequence

from tf_cdops.cli.launching import events
from tf_cdops.cli.launching import guard

# TensorFlow aborts programs that have lost others: that is no first cause.
_ABORTED = -signal.SIGABRT
_MOST_NAMES = 8  # In one sentence.
# For programs to end by themselves, in seconds. When one has failed, there is
# nothing left to do: TensorFlow's strategies catch SIGTERM, as the news that
# the machine will be taken away, and go on. If it is that, they may save.
_SIGTERM_SECONDS, _SAVING_SECONDS, _SIGINT_SECONDS = 3.0, 15.0, 5.0


@dataclasses.dataclass(frozen=True)
class Verdict:
  """How a run has ended.

  Attributes:
    code: the launcher's exit code.
    message: why, for people; "" if all is well.
    restart: whether another run may do better.
    signals: what to end the programs with that still run, one after the other,
      and how many seconds to wait then.
  """

  code: int
  message: str = ""
  restart: bool = False
  signals: tuple[tuple[int, float], ...] = (
      (signal.SIGTERM, _SIGTERM_SECONDS),)


def all_is_well() -> Verdict:
  return Verdict(0)


def told(event: events.Told | events.OutputLost) -> Verdict:
  """The launcher itself is to end."""
  if isinstance(event, events.OutputLost):
    return Verdict(event.code, f"{event.reason}; ending all.")
  if event.number == guard.ORPHANED:
    return Verdict(event.code, "the launcher was killed; ending all.")
  if event.number == signal.SIGINT:
    return Verdict(event.code, "interrupted; ending all.",
                   signals=((signal.SIGINT, _SIGINT_SECONDS),
                            (signal.SIGTERM, _SIGTERM_SECONDS)))
  name = signal.Signals(event.number).name
  return Verdict(event.code, f"told to end ({name}); ending all.",
                 signals=((signal.SIGTERM, _SAVING_SECONDS),))


def failed(ended: Sequence[events.Ended], running: Sequence[str],
           stopped: Sequence[str]) -> Verdict:
  """At least one program has failed.

  Args:
    ended: those that have ended, in that order.
    running: those that haven't, by name.
    stopped: those of them that don't get any further, having been stopped.
  """
  failures = [each for each in ended if each.code != 0]
  # Who loses a peer fails soon, with an error of TensorFlow's; and nobody dies
  # by a signal because of an error elsewhere.
  cause = next((each for each in failures
                if each.code < 0 and each.code != _ABORTED), failures[0])
  said = [f"{cause.name} {how(cause.code)}"]
  said += [f"{one} is stopped (SIGSTOP), which is the likely cause"
           for one in stopped]
  left = [each.name for each in ended[:ended.index(cause)] if each.code == 0]
  if left:
    said.append(f"{_listed(left)} had ended before, with exit code 0")
  others = [each for each in failures if each is not cause]
  if others:
    said.append("then " + ", ".join(
        f"{each.name} {how(each.code)}" for each in others))
  if running:
    said.append(f"ending {_listed(running)}")
  return Verdict(_exit_code(cause.code), "; ".join(said) + ".", restart=True)


def stopped_long(stopped: Sequence[str], seconds: float) -> Verdict:
  """Some have been stopped for so long that nobody should wait for them."""
  have = "has" if len(stopped) == 1 else "have"
  return Verdict(1, (
      f"{_listed(stopped)} {have} been stopped (SIGSTOP) for {seconds:g} s, "
      "for which the others can't wait; ending all."), restart=True)


def left_early(ended: Sequence[events.Ended], running: Sequence[str],
               grace: float) -> Verdict:
  """Some ended well, and the others didn't end."""
  names = [each.name for each in ended]
  return Verdict(1, (
      f"{_listed(names)} ended early, with exit code 0: {grace:g} s later "
      f"{_listed(running)} still ran; ending "
      f"{'it' if len(running) == 1 else 'them'}. Workers of one cluster must "
      "end together; give more time with --grace, if they need it."),
      restart=True)


def waiting(ended: Sequence[events.Ended], running: Sequence[str],
            grace: float) -> str:
  """Returns what is said while that time runs."""
  return (f"{_listed([each.name for each in ended])} ended, with exit code 0; "
          f"{_listed(running)} must end within {grace:g} s of that (--grace).")


def how(code: int) -> str:
  """Returns how a program ended: "failed with exit code 1"."""
  if code >= 0:
    return f"failed with exit code {code}"
  try:
    return f"was killed by {signal.Signals(-code).name}"
  except ValueError:  # A real-time signal.
    return f"was killed by signal {-code}"


def _exit_code(code: int) -> int:
  return code if code >= 0 else 128 - code


def _listed(names: Sequence[str]) -> str:
  if len(names) < 2:
    return "".join(names)
  if len(names) > _MOST_NAMES:
    names = [*names[:_MOST_NAMES], f"{len(names) - _MOST_NAMES} more"]
  return f"{', '.join(names[:-1])} and {names[-1]}"
