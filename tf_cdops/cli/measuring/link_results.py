"""What was measured of links, and which of them are slow: plain values."""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tf_cdops.base import device_names

# Below this part of what the others do, a link is called slow.
_SLOW = 0.5
_SLOW_PAIR = 0.25  # Of what its two workers do with others.


@dataclasses.dataclass(frozen=True)
class LinkMeasurement:
  """One direction between two devices, as TensorFlow's transfers see it.

  Attributes:
    source: the device that sends, by its full name.
    target: the device that receives.
    latency_seconds: of a small tensor: half of the way there and back.
    bytes_per_second: of a large tensor alone on its way.
    message_seconds: what each further small tensor adds where many are under
      way at once; None where it wasn't measured.
    busy_bytes_per_second: of a large tensor while each worker sends one and
      receives one; None where it wasn't measured.
  """

  source: str
  target: str
  latency_seconds: float
  bytes_per_second: float
  message_seconds: float | None = None
  busy_bytes_per_second: float | None = None

  @property
  def is_inside(self) -> bool:
    """Whether both devices are one worker's."""
    return worker_name(self.source) == worker_name(self.target)


def worker_name(device: str) -> str:
  """Returns a device's worker in words, such as "worker 3"."""
  job, _, task = device_names.parse(device).worker
  return f"{job or 'worker'} {task}"


def workers_of(links: Iterable[LinkMeasurement]) -> list[str]:
  """Returns the names of all workers, in the order of the links."""
  return list(dict.fromkeys(worker_name(device) for link in links
                            for device in (link.source, link.target)))


def summarize(links: Sequence[LinkMeasurement]) -> dict[str, Any]:
  """Returns the medians inside workers and across; None if there are none.

  Bytes a second are those of an all-reduce, in which all send at once, where
  that is less than what a tensor alone has.
  """
  summary: dict[str, Any] = {}
  for which, inside in (("inside", True), ("across", False)):
    chosen = [link for link in links if link.is_inside == inside]
    messages = [link.message_seconds for link in chosen
                if link.message_seconds is not None]
    if not chosen:
      summary[which] = None
      continue
    alone = _median(link.bytes_per_second for link in chosen)
    busy = [link.busy_bytes_per_second for link in chosen
            if link.busy_bytes_per_second is not None]
    summary[which] = {
        "latency_seconds": _median(link.latency_seconds for link in chosen),
        "bytes_per_second": min(alone, _median(busy)) if busy else alone,
        "message_seconds": _median(messages) if messages else 0.0,
        "alone_bytes_per_second": alone,
    }
  return summary


def find_slow(links: Sequence[LinkMeasurement]) -> list[str]:
  """Says which workers send or receive slowly, and which pairs do alone.

  A worker is judged by the best of its links: one that is quick proves that
  its own cable is. So a slow worker doesn't make the others look slow.
  """
  across = [link for link in links if not link.is_inside]
  best: dict[str, dict[str, float]] = {"sends": {}, "receives": {}}
  for link in across:
    for verb, device in (("sends", link.source), ("receives", link.target)):
      worker, rates = worker_name(device), best[verb]
      rates[worker] = max(rates.get(worker, 0.0), link.bytes_per_second)
  said = []
  for verb, rates in best.items():
    common = statistics.median_high(rates.values()) if rates else 0.0
    said += [f"{worker} {verb} at {rate / common:.2f} of the median"
             for worker, rate in rates.items() if rate < _SLOW * common]
  for link in across:
    source, target = worker_name(link.source), worker_name(link.target)
    able = min(best["sends"][source], best["receives"][target])
    if link.bytes_per_second < _SLOW_PAIR * able:
      said.append(f"{source} to {target} has {link.bytes_per_second / able:.2f}"
                  " of what both do with others")
  return said


def _median(numbers: Iterable[float]) -> float:
  return float(statistics.median(numbers))
