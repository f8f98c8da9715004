"""Gives training faults at random, and counts how many are named rightly.

    python -m tests.guard_campaign --cases=300 [--begin=100 --end=200]

A fault is a NaN or an infinity in one element of one variable's gradient on one
replica in one step, or a flipped bit in one replica's copy of a weight or an
optimizer slot. Training has 1, 2 or 3 workers, in one program or in one each,
and steps run eagerly, in a function, or four to a call. The error must name the
replica, its worker, the variable and, of a bit, the element. Then clean steps
of large, tiny, denormal, empty and sparse values must raise nothing, and change
no result. It ends with 1 if anything is wrong.
"""

import dataclasses
import json
import pathlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from absl import app
from absl import flags

from tests import python_process

_CASES = flags.DEFINE_integer("cases", 300, "How many faults.")
_CLEAN = flags.DEFINE_integer("clean_steps", 2000, "How many clean steps.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the faults.")
_BEGIN = flags.DEFINE_integer("begin", 0, "The first fault to give.")
_END = flags.DEFINE_integer("end", None, "The first not to; None for all.")
_SITES = flags.DEFINE_list("sites", None, "Only these; None for all.")
# Where training runs; most where a fault costs the least time.
SITES = ("local", "client2", "client3", "spmd2", "spmd3")
_SHARES = (6, 6, 6, 1, 1)
MODES = ("eager", "function", "steps")
KINDS = ("nan", "inf", "-inf", "weight", "slot")
_SECONDS = 1800.0
_FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Case:
  """One fault; its number decides the rest of it."""

  number: int
  site: str
  mode: str
  kind: str


def cases(count: int, seed: int) -> list[Case]:
  chance = random.Random(seed)
  first = chance.randrange(1 << 30)
  return [Case(first + i, chance.choices(SITES, _SHARES)[0],
               chance.choice(MODES), chance.choice(KINDS))
          for i in range(count)]


def run(site: str, chosen: Sequence[Case]) -> dict[int, list[str]]:
  """Returns what is wrong with each case of a site.

  Of programs with collective ops, those end with an error; so each has its own.
  """
  if site.startswith("spmd"):
    wrong = {}
    for case in chosen:
      wrong |= _run(site, [case])
    return wrong
  return _run(site, chosen)


def _run(site: str, chosen: Sequence[Case]) -> dict[int, list[str]]:
  told = json.dumps([[case.number, case.mode, case.kind] for case in chosen])
  programs = int(site.removeprefix("spmd")) if site.startswith("spmd") else 1
  launcher = (["-m", "tf_cdops", "launch", f"--workers={programs}"]
              if site.startswith("spmd") else [])
  with tempfile.TemporaryDirectory() as folder:
    done = subprocess.run(
        [sys.executable, *launcher, str(_FOLDER / "guard_program.py"), folder,
         "spmd" if launcher else site, told], env=python_process.environment(),
        capture_output=True, text=True, timeout=_SECONDS, check=False)
    written = [json.loads(path.read_text()) if path.exists() else {}
               for path in (pathlib.Path(folder) / f"{rank}.json"
                            for rank in range(programs))]
  return {case.number: [line for one in written for line in one.get(
      str(case.number), [f"it never came there: {done.stderr[-2000:]}"])]
          for case in chosen}


def main(argv: list[str]) -> None:
  del argv
  chosen = cases(_CASES.value, _SEED.value)[_BEGIN.value:_END.value]
  failed = 0
  for site in _SITES.value or SITES:
    there = [case for case in chosen if case.site == site]
    wrong = run(site, there) if there else {}
    for case in there:
      if wrong[case.number]:
        failed += 1
        print(f"{case}: {'; '.join(wrong[case.number])}", flush=True)
    print(f"{site}: {sum(not lines for lines in wrong.values())} of "
          f"{len(there)} named rightly", flush=True)
  if not _CLEAN.value:
    sys.exit(failed > 0)
  clean = subprocess.run(
      [sys.executable, str(_FOLDER / "guard_clean.py"), str(_CLEAN.value)],
      env=python_process.environment(), check=False)
  print(f"{_CLEAN.value} clean steps: "
        f"{'no alarm' if clean.returncode == 0 else 'FAILED'}")
  sys.exit(failed > 0 or clean.returncode != 0)


if __name__ == "__main__":
  app.run(main)
