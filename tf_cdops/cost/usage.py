"""What one all-reduce uses of the links: by its formula, or by tracing it."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.fabric import base
from tf_cdops.fabric import tracing
from tf_cdops.registry import proof
from tf_cdops.registry import traffic

# How numbers were got, from the surest to the least sure.
BASES = ("exact", "traced", "modelled", "extrapolated")
# Where a worker receives from several others, some wait while links elsewhere
# are idle. On hosts at 200 to 500 Mbit/s, all-reduces with changing partners
# took 1.2 to 1.3 times as long as rings, with as many bytes.
CONTENTION = 1.25
# A trace takes time with the square of the devices.
MOST_TRACED = proof.MOST_DEVICES


@dataclasses.dataclass(frozen=True, eq=False)
class Usage:
  """What all-reduces, or a phase of one, use of the links.

  Attributes:
    steps: transfers on the critical path.
    latencies: how often it waits for a link's latency, an engine's hidden
      steps too: inside workers, and across.
    inside: bytes that change device inside workers, in all.
    across: bytes that change worker, in all.
    device_bytes: what each device, and then each host, sends (first row) and
      receives (second) inside its worker.
    worker_bytes: what each worker sends to and receives from others; times
      CONTENTION, if any receives from more than one.
    messages: how many each worker sends or receives, inside (first row) and
      from or to others.
    coded: bytes that each worker encodes for a wire, or gets by decoding, times
      what the codec takes for one.
    links: how many transfers this was added up from: the work of doing so.
    basis: one of BASES.
  """

  steps: int
  latencies: np.ndarray
  inside: int
  across: int
  device_bytes: np.ndarray
  worker_bytes: np.ndarray
  messages: np.ndarray
  coded: np.ndarray
  links: int = 0
  basis: str = BASES[0]

  @classmethod
  def nothing(cls, topology: topology_lib.Topology) -> "Usage":
    w = len(topology.workers)
    return cls(0, np.zeros(2, int), 0, 0,
               np.zeros((2, len(topology.devices) + w)), np.zeros((2, w)),
               np.zeros((2, w)), np.zeros(w))

  @functools.cached_property
  def busiest(self) -> tuple[int, int]:
    """The device and the worker with the largest loads."""
    return int(self.device_bytes.argmax()), int(self.worker_bytes.argmax())

  def inside_bytes(self, topology: topology_lib.Topology,
                   shared: bool) -> np.ndarray:
    """Returns what each link inside workers carries.

    Args:
      topology: the devices.
      shared: whether a worker's devices share one; else each device and host
        has its own, either way.
    """
    if not shared:
      return self.device_bytes
    return np.bincount(_worker_of(topology), self.device_bytes[0],
                       len(topology.workers))

  def __add__(self, other: "Usage") -> "Usage":
    """Returns what both use, one after the other."""
    return Usage(
        self.steps + other.steps, self.latencies + other.latencies,
        self.inside + other.inside, self.across + other.across,
        self.device_bytes + other.device_bytes,
        self.worker_bytes + other.worker_bytes,
        self.messages + other.messages, self.coded + other.coded,
        self.links + other.links,
        max(self.basis, other.basis, key=BASES.index))

  @classmethod
  def weighted(cls, weights: Mapping["Usage", tuple[int, float]]) -> "Usage":
    """Returns what several use: so often the steps, so many times the bytes.

    At once: one by one takes 5 times as long, and plans are full of it.
    """
    used, (often, sizes) = weights.keys(), zip(*weights.values(), strict=True)
    times = lambda weights, loads: np.tensordot(weights, list(loads), 1)
    return cls(
        int(times(often, (one.steps for one in used))),
        times(often, (one.latencies for one in used)),
        round(float(times(sizes, (one.inside for one in used)))),
        round(float(times(sizes, (one.across for one in used)))),
        times(sizes, (one.device_bytes for one in used)),
        times(sizes, (one.worker_bytes for one in used)),
        times(often, (one.messages for one in used)),
        times(sizes, (one.coded for one in used)),
        sum(one.links for one in used),
        max((one.basis for one in used), key=BASES.index))

  def with_even_loads(self, level: Callable[[np.ndarray], np.ndarray]
                      ) -> "Usage":
    """Returns it with all devices loaded alike, all hosts and all workers."""
    hosts = self.worker_bytes.shape[1]
    even = lambda loads: np.broadcast_to(level(loads), loads.shape)
    return dataclasses.replace(
        self, worker_bytes=even(self.worker_bytes),
        messages=even(self.messages), coded=even(self.coded),
        device_bytes=np.hstack([even(self.device_bytes[:, :-hosts]),
                                even(self.device_bytes[:, -hosts:])]))


def mean(loads: np.ndarray) -> np.ndarray:
  """Returns the mean of each row."""
  return loads.mean(axis=-1, keepdims=True)


def least_mean(loads: np.ndarray) -> np.ndarray:
  """Returns the mean or the median of each row, whichever is less."""
  middle = loads.shape[-1] // 2  # `np.median` imports for 15 ms.
  return np.minimum(mean(loads), mean(np.sort(loads)[
      ..., middle - 1 + loads.shape[-1] % 2:middle + 1]))


def count_by_phase(algorithm: registry.Algorithm,
                   topology: topology_lib.Topology, elements: int,
                   itemsize: int = 1, rotation: int = 0) -> list[Usage]:
  """Returns what one all-reduce uses, in phases that wait for each other."""
  phases, basis = _phases(algorithm, topology, elements, rotation)
  return _usages(phases, topology, itemsize, basis, range(len(phases)))


def count(algorithm: registry.Algorithm, topology: topology_lib.Topology,
          elements: int, itemsize: int = 1, rotation: int = 0) -> Usage:
  """Returns what one all-reduce uses in all."""
  phases, basis = _phases(algorithm, topology, elements, rotation)
  found = _usages(phases, topology, itemsize, basis, [0] * len(phases))
  return found[0] if found else Usage.nothing(topology)


def _phases(algorithm: registry.Algorithm, topology: topology_lib.Topology,
            elements: int, rotation: int) -> tuple[list[registry.Phase], str]:
  """Returns the phases of one all-reduce, and how they were got."""
  group = base.Group.from_topology(topology, rotation)
  if not algorithm.traffic:
    return _traced(algorithm, elements, group)
  return (list(algorithm.traffic(elements, group).phases),
          "modelled" if algorithm.modelled else "exact")


def _traced(algorithm: registry.Algorithm, length: int, group: base.Group
            ) -> tuple[list[registry.Phase], str]:
  """Returns the phases that a trace counts, a step each."""
  if len(group.places) > MOST_TRACED:
    raise errors.AlgorithmError(
        f"`algorithm` ({algorithm.name!r}) must have a `traffic` formula to "
        f"tell its cost on {len(group.places)} devices: without one it is "
        f"traced, on at most {MOST_TRACED}. See tf_cdops.register_all_reduce.")
  fabric = tracing.TracingFabric()
  values = [fabric.replica(i, length, place)
            for i, place in enumerate(group.places)]
  results = algorithm.all_reduce(fabric, values, group)
  links: dict[int, list[tuple[int, int, int]]] = collections.defaultdict(list)
  for transfer in fabric.transfers:
    links[transfer.step].append(
        (group.endpoint(transfer.source), group.endpoint(transfer.target),
         transfer.elements))
  rows = {step: [registry.phase(1, *np.array(links[step]).T)]
          for step in links}
  for native in fabric.native_steps:
    own = base.Group(native.places, (tuple(range(len(native.places))),), ())
    ranks = np.array([group.endpoint(place) for place in native.places])
    rows.setdefault(native.step, []).extend(
        phase.mapped(ranks)
        for phase in registry.engine_traffic(native.elements, own).phases)
  return [dataclasses.replace(phase, wire=algorithm.wire)
          for step in range(1, max(r.step for r in results) + 1)
          for phase in traffic.side_by_side((p,) for p in rows.get(step, ()))
          ], "modelled" if fabric.native_steps else "traced"


def _usages(phases: Sequence[registry.Phase], topology: topology_lib.Topology,
            itemsize: int, basis: str, rows: Sequence[int]) -> list[Usage]:
  """Adds up phases, at once: for thousands of plans, one by one takes long.

  Args:
    phases: that follow each other.
    topology: the devices.
    itemsize: of an element.
    basis: how the phases were got.
    rows: for each phase, in which of the usages it is, from 0 on.
  """
  if not phases:
    return []
  worker_of, workers = _worker_of(topology), len(topology.workers)
  counts, number = [len(p.sources) for p in phases], rows[-1] + 1
  # All sources, and then all targets.
  ends = np.concatenate([*(p.sources for p in phases),
                         *(p.targets for p in phases)])
  workers_at = worker_of[ends]
  senders, receivers = workers_at.reshape(2, -1)
  crosses = senders != receivers
  crossing = crosses & (_joined([p.elements for p in phases]) > 0)
  starts = list(itertools.accumulate(counts[:-1], initial=0))
  parts = [crosses[start:start + count]
           for start, count in zip(starts, counts, strict=True)]
  sizes = _joined([p.num_bytes(itemsize, part)
                   for p, part in zip(phases, parts, strict=True)])
  row = np.repeat(rows, counts)
  row_of_end = np.concatenate([2 * row, 2 * row + 1])
  # Of each usage: at each source, and at each target.
  add = lambda at, loads, count: np.bincount(
      row_of_end * count + at, np.concatenate([loads, loads]),
      2 * number * count).reshape(number, 2, count)
  steps, waits = np.zeros(number, int), np.zeros((number, 2), int)
  for r, p, is_across in zip(
      rows, phases, np.logical_or.reduceat(crossing, starts).tolist(),
      strict=True):
    steps[r] += p.steps
    waits[r, int(is_across)] += p.steps + p.hidden
  # A link's payload goes in as many messages as there are steps.
  sent = (sizes > 0) * np.repeat([p.steps + p.hidden for p in phases], counts)
  inside = add(ends, sizes * ~crosses, len(worker_of))
  between = add(workers_at, sizes * crosses, workers)
  messages = np.array([add(workers_at, sent * ~crosses, workers)[:, 0],
                       add(workers_at, sent * crosses, workers).sum(axis=1)])
  coded = np.zeros((number, workers))
  if any(p.wire is not None for p in phases):
    coded = add(workers_at, _joined([
        p.elements * p.are_coded(part) * itemsize
        * (p.wire.codec.passes if p.wire is not None else 0)
        for p, part in zip(phases, parts, strict=True)]), workers).sum(axis=1)
  weight = _weight(senders[crossing], receivers[crossing], workers)
  links = np.bincount(row).tolist()
  return [
      Usage(int(steps[r]), waits[r], int(inside[r, 0].sum()),
            int(between[r, 0].sum()), inside[r], weight * between[r],
            messages[:, r], coded[r], links[r], basis)
      for r in range(number)]


def _weight(sources: np.ndarray, targets: np.ndarray, workers: int) -> float:
  """Returns what a byte between these workers counts for."""
  if workers < 3:
    return 1
  senders = np.zeros(workers, int)
  senders[targets] = sources  # The last, where a worker has several.
  return CONTENTION if (senders[targets] != sources).any() else 1


def _joined(rows: Sequence[np.ndarray]) -> np.ndarray:
  return rows[0] if len(rows) == 1 else np.concatenate(rows)


@functools.lru_cache(maxsize=16)
def _worker_of(topology: topology_lib.Topology) -> np.ndarray:
  """The worker of each device, and then of each host."""
  workers = np.zeros(len(topology.devices), int)
  for w, ranks in enumerate(topology.workers):
    workers[list(ranks)] = w
  return np.concatenate([workers, np.arange(len(topology.workers))])
