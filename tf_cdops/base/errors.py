"""The package's errors: all are ValueErrors, and all say what to do.

The form is: the argument's name, the value in parentheses, the rule, and the
remedy.
"""

import difflib
import math
from collections.abc import Iterable
from typing import Any


class Error(ValueError):
  """Base of every error that tf_cdops raises for a caller's mistake."""

  # AutoGraph raises an error of the same type from a tf.function only if it
  # knows the type's constructor; else callers would get no ValueError.
  __init__ = Exception.__init__


class InputError(Error):
  """A value, destination or reduce_op that can't be reduced."""


class DeviceError(Error):
  """A device name that doesn't parse, isn't there, or can't do the job."""


class SpecError(Error):
  """An all-reduce spec that doesn't parse or can't be followed."""


class AlgorithmError(Error):
  """An algorithm that is unknown, badly registered, or can't run here."""


class ProofError(Error):
  """An algorithm that doesn't sum every replica's every element once."""


class ClusterError(RuntimeError):
  """A worker that can't be reached, doesn't answer, or has gone."""

  __init__ = Exception.__init__  # As above.


class ReplicasDifferError(RuntimeError):
  """A mirrored variable of which replicas have different values."""

  __init__ = Exception.__init__  # As above.


def is_whole_number(value: object, least: int,
                    most: int | None = None) -> bool:
  """Whether it is one, and in range; True and 2.0 aren't."""
  return (isinstance(value, int) and not isinstance(value, bool)
          and value >= least and (most is None or value <= most))


def check_whole_number(name: str, value: Any, least: int,
                       most: int | None = None,
                       error: type[Error] = InputError) -> int:
  """Returns a whole number in range; raises `error` for anything else."""
  if not is_whole_number(value, least, most):
    rule = (f"a whole number of at least {least}" if most is None
            else f"from {least} to {most:,}")
    raise error(f"`{name}` ({value!r}) must be {rule}.")
  return value


def check_bool(name: str, value: Any) -> bool:
  """Returns True or False; raises for anything else."""
  if not isinstance(value, bool):
    raise InputError(f"`{name}` ({value!r}) must be True or False.")
  return value


def check_seconds(name: str, value: Any) -> float | None:
  """Returns a number of seconds, 0 or more, or None."""
  if value is not None and (
      isinstance(value, bool) or not isinstance(value, (int, float))
      or not 0 <= value < math.inf):
    raise InputError(f"`{name}` ({value!r}) must be a number of seconds, 0 or "
                     "more, or None.")
  return value


def check_duration(name: str, value: Any) -> float:
  """Returns a number of seconds above 0."""
  if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
      0 < value < math.inf):
    raise InputError(
        f"`{name}` ({value!r}) must be a number of seconds above 0.")
  return value


def did_you_mean(name: object, choices: Iterable[str]) -> str:
  """Returns " Did you mean 'x'?" for the nearest of `choices`, or ""."""
  near = difflib.get_close_matches(str(name), list(choices), n=2, cutoff=0.5)
  if not near:
    return ""
  return f" Did you mean {' or '.join(repr(n) for n in near)}?"
