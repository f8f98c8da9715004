"""Finds the command, runs it, and turns its outcome into an exit code.

Exit codes: 0 done, 1 the command's check failed, 2 wrong usage, 130 Ctrl-C.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from absl.flags import argparse_flags

from tf_cdops.base import errors
from tf_cdops.base import version
from tf_cdops.cli import algorithms
from tf_cdops.cli import bench
from tf_cdops.cli import demo
from tf_cdops.cli import doctor
from tf_cdops.cli import explain
from tf_cdops.cli import launch
from tf_cdops.cli import quiet_start
from tf_cdops.cli import trace
from tf_cdops.cli import tune
from tf_cdops.cli import worker

# Each has NAME, add_arguments(parser) and run(args) -> exit code, and imports
# TensorFlow only in run, so that --help is quick.
_COMMANDS = (algorithms, bench, demo, doctor, explain, launch, trace, tune,
             worker)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command; returns its exit code."""
  parser, commands = _parsers()
  args, unknown = parser.parse_known_args(argv)
  if unknown:
    commands[args.command.NAME].refuse(unknown)
  # TensorFlow reads this when it is loaded, which no command has done yet. A
  # program that is launched is its user's, who may want to hear it.
  if args.command is not launch:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  if "tensorflow" not in sys.modules:
    sys.meta_path.insert(0, quiet_start.QuietLoading())
  if hasattr(sys.stdout, "reconfigure"):  # A "?" is better than an error.
    sys.stdout.reconfigure(errors="replace")
  try:
    code = args.command.run(args)
    if sys.stdout:
      sys.stdout.flush()
    return code
  except (errors.Error, errors.ClusterError, ModuleNotFoundError) as error:
    if args.debug:
      raise
    print(f"tf_cdops {args.command.NAME}: {error}", file=sys.stderr)
    return 1 if isinstance(error, errors.ClusterError) else 2
  except BrokenPipeError:  # The reader, `head` say, has seen enough.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except KeyboardInterrupt:
    print(f"tf_cdops {args.command.NAME}: interrupted", file=sys.stderr)
    return 130


class _Parser(argparse_flags.ArgumentParser):
  """Reports wrong usage in one line."""

  def error(self, message: str) -> NoReturn:
    end = "" if message.endswith((".", "?")) else "."
    self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help.\n")

  def refuse(self, unknown: Sequence[str]) -> NoReturn:
    near = errors.did_you_mean(unknown[0].split("=")[0],
                               self._option_string_actions)
    self.error(f"unrecognized arguments: {' '.join(unknown)}.{near}")


def _parsers() -> tuple[_Parser, dict[str, _Parser]]:
  """Returns the parser, and that of each command by its name."""
  # It sees the flags of a program that `launch` runs, too: none are short for
  # its own.
  parser = _Parser(prog="tf_cdops", allow_abbrev=False,
                   description="All-reduce for "
                   "tf.distribute.MirroredStrategy.")
  parser.add_argument("--version", action="version",
                      version=f"tf_cdops {version.__version__}")
  subparsers = parser.add_subparsers(title="commands", metavar="COMMAND",
                                     required=True)
  commands = {}
  for command in _COMMANDS:
    summary = (command.__doc__ or "").splitlines()[0]
    sub = subparsers.add_parser(
        command.NAME, help=summary, description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    sub.add_argument("--debug", action="store_true",
                     help="show the traceback of an error")
    sub.add_argument("--json", action="store_true",
                     help="print the outcome as JSON, and nothing else")
    command.add_arguments(sub)
    sub.set_defaults(command=command)
    commands[command.NAME] = sub
  return parser, commands
