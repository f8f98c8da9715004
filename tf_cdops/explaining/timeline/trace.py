"""A trace: a few steps of all devices, links and buckets."""

import dataclasses
from typing import NamedTuple

CLIENT = "client"
COMPUTING, COMMUNICATION, OTHER = "computing", "communication", "other"


class Step(NamedTuple):
  """A step, in seconds from the trace's beginning."""

  number: int
  start: float
  end: float

  @property
  def seconds(self) -> float:
    return self.end - self.start


class Span(NamedTuple):
  """Something that a device did.

  Attributes:
    name: the op's.
    op: its type.
    device: where.
    start: when.
    end: likewise.
    kind: COMPUTING, COMMUNICATION for a bucket's, or OTHER for what else is
      sent.
    bucket: its position in the trace's buckets; None if it isn't one's.
    in_flight: whether the device waited meanwhile, as for a collective op.
  """

  name: str
  op: str
  device: str
  start: float
  end: float
  kind: str
  bucket: int | None = None
  in_flight: bool = False


class Transfer(NamedTuple):
  """What one device sent to another, from when it was ready till it was there.

  Attributes:
    name: the op's whose result it is.
    source: from where.
    destination: where to; "" for all other workers, of a collective op.
    start: when it was ready.
    end: when it was there.
    bucket: as of a span.
  """

  name: str
  source: str
  destination: str
  start: float
  end: float
  bucket: int | None = None


@dataclasses.dataclass(frozen=True)
class Bucket:
  """Tensors that travel as one.

  Attributes:
    scope: what the names of its batch's ops begin with.
    number: its position in the batch.
    algorithm: what sums it.
    num_bytes: its size, on one replica; None if it isn't known.
    tensors: what its tensors are called.
    predicted: the seconds that it takes alone, as `explain` has it.
  """

  scope: str
  number: int
  algorithm: str
  num_bytes: int | None = None
  tensors: tuple[str, ...] = ()
  predicted: float | None = None

  @property
  def label(self) -> str:
    return f"bucket {self.number}"


@dataclasses.dataclass(frozen=True)
class Clock:
  """How a host's clock was aligned with the first one's.

  Attributes:
    host: whose it is.
    moved: the seconds that its times were moved by.
    within: how far from the truth that may be; None if nothing tells.
  """

  host: str
  moved: float
  within: float | None


@dataclasses.dataclass(frozen=True)
class Saving:
  """What might be changed, and what is predicted to be left of the time.

  Attributes:
    change: in words.
    ratio: predicted time with it, by that without.
  """

  change: str
  ratio: float


@dataclasses.dataclass(frozen=True)
class Trace:
  """What happened.

  Attributes:
    steps: those that were seen as a whole.
    devices: all, those of replicas first and in their order.
    replicas: how many of them are replicas'.
    spans: what they did.
    transfers: what was sent between devices.
    buckets: what was all-reduced.
    clocks: of all hosts but the first.
    savings: what might be changed.
  """

  steps: tuple[Step, ...]
  devices: tuple[str, ...]
  replicas: int
  spans: tuple[Span, ...]
  transfers: tuple[Transfer, ...]
  buckets: tuple[Bucket, ...]
  clocks: tuple[Clock, ...] = ()
  savings: tuple[Saving, ...] = ()

  def of_bucket(self, bucket: int) -> list[Span | Transfer]:
    """Returns all that was done for a bucket, given its position."""
    found: list[Span | Transfer] = []
    found += [span for span in self.spans if span.bucket == bucket]
    found += [one for one in self.transfers if one.bucket == bucket]
    return found

  def name_of(self, device: str) -> str:
    """Returns what people call a device here: a client's own is one of many."""
    name = short_name(device)
    several = len(set(map(worker_of, self.devices))) > 1
    return f"{CLIENT} {name}" if several and " " not in name else name


def worker_of(device: str) -> str:
  """Returns the part of a device's name that tells its worker."""
  return device.partition("/device:")[0]


def short_name(device: str) -> str:
  """Returns a device's name for people: "worker 1 CPU:0", or "CPU:0"."""
  worker, _, kind = device.partition("/device:")
  parts = dict(part.split(":", 1) for part in worker.split("/") if ":" in part)
  if parts.get("job", "localhost") == "localhost":
    return kind or device
  return f"{parts['job']} {parts.get('task', '0')} {kind}"


def short_worker(worker: str) -> str:
  """Returns a worker's name for people; "" stands for all others."""
  if not worker:
    return "the others"
  name = short_name(f"{worker}/device:").strip()
  return CLIENT if name.startswith("/") or not name else name
