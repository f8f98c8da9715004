"""The flags that say which wires to try."""

import argparse

from tf_cdops import registry

NONE = "none"


def add_arguments(parser: argparse.ArgumentParser, meaning: str) -> None:
  """Adds them; `meaning` says what is done with several."""
  group = parser.add_argument_group("how messages are encoded")
  group.add_argument(
      "--wire", default=NONE, metavar="LIST",
      help=f"{meaning}; comma-separated: bfloat16, float16, int8, those of "
           f"your own, and {NONE} for not at all (default: {NONE})")
  group.add_argument("--wire_scope", default="across", metavar="SCOPE",
                     help="across, between workers (default), or all")


def parse(args: argparse.Namespace) -> list[registry.Wire | None]:
  """Returns the wires, each once; None for none."""
  names = [name.strip() for name in args.wire.split(",") if name.strip()]
  some = [name for name in dict.fromkeys(names) if name != NONE]
  if not some:  # Raises if there is nothing that the scope is for.
    return [registry.check_wire(None, args.wire_scope)]
  wires = [registry.check_wire(name, args.wire_scope) for name in some]
  return [None, *wires] if NONE in names else wires
