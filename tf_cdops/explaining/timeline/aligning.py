"""Aligns the clocks of hosts, by what can't have been otherwise.

Nothing that a worker does for a call happens before the call or after it. And
of an exchange among programs no one has the answer before all have asked. So
there is a range by which a clock may be wrong; a clock is moved only if it must
be, and then as little as it must.
"""

from collections.abc import Sequence

from tf_cdops.explaining.timeline import reading as reading_lib
from tf_cdops.explaining.timeline import trace

# When a program asked, and when it had the answer, by its own clock.
Exchange = tuple[float, float]


def worker_with_client(host: str, client: reading_lib.Reading,
                       worker: reading_lib.Reading) -> trace.Clock:
  """Returns how a worker's clock goes with that of who calls it."""
  firsts: dict[int, float] = {}
  lasts: dict[int, float] = {}
  for kernel in worker.kernels:
    firsts[kernel.run] = min(firsts.get(kernel.run, kernel.start), kernel.start)
    lasts[kernel.run] = max(lasts.get(kernel.run, kernel.end), kernel.end)
  whole = [run for run in client.runs if run in firsts]
  return _clock(host, [client.runs[run][0] - firsts[run] for run in whole],
                [client.runs[run][1] - lasts[run] for run in whole])


def programs(host: str, first: Sequence[Exchange],
             other: Sequence[Exchange]) -> trace.Clock:
  """Returns how a program's clock goes with the first one's."""
  rounds = list(zip(first, other, strict=True))
  return _clock(host, [mine[0] - its[1] for mine, its in rounds],
                [mine[1] - its[0] for mine, its in rounds])


def _clock(host: str, lows: Sequence[float],
           highs: Sequence[float]) -> trace.Clock:
  """Returns a clock that is moved by no less than lows, no more than highs."""
  if not lows:
    return trace.Clock(host, 0.0, None)
  low, high = max(lows), min(highs)
  if low > high:  # It didn't go evenly.
    return trace.Clock(host, (low + high) / 2, (low - high) / 2)
  moved = min(max(0.0, low), high)
  return trace.Clock(host, moved, max(high - moved, moved - low))
