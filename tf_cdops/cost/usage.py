"""What one all-reduce uses of the links: by its formula, or by tracing it."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

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

  @property
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

  def scaled(self, steps: int, size: float) -> "Usage":
    """Returns it with `steps` times the steps and `size` times the bytes."""
    return dataclasses.replace(
        self, steps=self.steps * steps, latencies=self.latencies * steps,
        inside=round(self.inside * size), across=round(self.across * size),
        device_bytes=self.device_bytes * size,
        worker_bytes=self.worker_bytes * size,
        messages=self.messages * steps, coded=self.coded * size)

  def with_even_loads(self, level: Callable[..., np.ndarray]) -> "Usage":
    """Returns it with all devices loaded alike, all hosts and all workers."""
    hosts = self.worker_bytes.shape[1]
    even = lambda loads: np.broadcast_to(
        level(loads, axis=-1, keepdims=True), loads.shape)
    return dataclasses.replace(
        self, worker_bytes=even(self.worker_bytes),
        messages=even(self.messages), coded=even(self.coded),
        device_bytes=np.hstack([even(self.device_bytes[:, :-hosts]),
                                even(self.device_bytes[:, -hosts:])]))


def count_by_phase(algorithm: registry.Algorithm,
                   topology: topology_lib.Topology, elements: int,
                   itemsize: int = 1, rotation: int = 0) -> list[Usage]:
  """Returns what one all-reduce uses, in phases that wait for each other."""
  phases, basis = _phases(algorithm, topology, elements, rotation)
  weight = _weight(phases, topology)
  return [_usage([phase], topology, itemsize, basis, weight)
          for phase in phases]


def count(algorithm: registry.Algorithm, topology: topology_lib.Topology,
          elements: int, itemsize: int = 1, rotation: int = 0) -> Usage:
  """Returns what one all-reduce uses in all."""
  phases, basis = _phases(algorithm, topology, elements, rotation)
  if not phases:
    return Usage.nothing(topology)
  return _usage(phases, topology, itemsize, basis, _weight(phases, topology))


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


def _weight(phases: Sequence[registry.Phase],
            topology: topology_lib.Topology) -> float:
  """Returns what a byte between workers counts for."""
  if len(topology.workers) < 3 or not phases:
    return 1
  worker_of = _worker_of(topology)
  sources, targets = (worker_of[end] for end in _ends(phases))
  crossing = (sources != targets) & (_joined([p.elements for p in phases]) > 0)
  sources, targets = sources[crossing], targets[crossing]
  senders = np.zeros(len(topology.workers), int)
  senders[targets] = sources  # The last, where a worker has several.
  return CONTENTION if (senders[targets] != sources).any() else 1


def _usage(phases: Sequence[registry.Phase], topology: topology_lib.Topology,
           itemsize: int, basis: str, weight: float) -> Usage:
  """Adds up phases, at once: for thousands of plans, one by one takes long."""
  worker_of, workers = _worker_of(topology), len(topology.workers)
  ends = _ends(phases)
  workers_at = [worker_of[end] for end in ends]
  crosses = workers_at[0] != workers_at[1]
  counts = [len(p.sources) for p in phases]
  starts = [0, *itertools.accumulate(counts)]
  of_phase = [crosses[start:end] for start, end in itertools.pairwise(starts)]
  sizes = _joined([p.num_bytes(itemsize, crossing) for p, crossing
                   in zip(phases, of_phase, strict=True)])
  across = sizes * crosses
  latencies = np.zeros(2, int)
  for p, crossing in zip(phases, of_phase, strict=True):
    latencies[int((crossing & (p.elements > 0)).any())] += p.steps + p.hidden
  # A link's payload goes in as many messages as there are steps.
  sent = (sizes > 0) * np.repeat([p.steps + p.hidden for p in phases], counts)
  handled = np.array([
      np.bincount(workers_at[0], sent * ~crosses, workers),
      sum(np.bincount(end, sent * crosses, workers) for end in workers_at)])
  coded = np.zeros(workers)
  if any(p.wire is not None for p in phases):
    passed = _joined([
        p.elements * p.are_coded(crossing) * itemsize
        * (p.wire.codec.passes if p.wire is not None else 0)
        for p, crossing in zip(phases, of_phase, strict=True)])
    for end in workers_at:
      coded += np.bincount(end, passed, workers)
  return Usage(
      sum(p.steps for p in phases), latencies, int((sizes - across).sum()),
      int(across.sum()),
      np.array([np.bincount(end, sizes - across, len(worker_of))
                for end in ends]),
      np.array([np.bincount(end, weight * across, workers)
                for end in workers_at]), handled, coded, len(sizes), basis)


def _ends(phases: Sequence[registry.Phase]) -> tuple[np.ndarray, np.ndarray]:
  """Returns all links' sources, and their targets."""
  return (_joined([p.sources for p in phases]),
          _joined([p.targets for p in phases]))


def _joined(rows: Sequence[np.ndarray]) -> np.ndarray:
  return rows[0] if len(rows) == 1 else np.concatenate(rows)


@functools.lru_cache(maxsize=16)
def _worker_of(topology: topology_lib.Topology) -> np.ndarray:
  """The worker of each device, and then of each host."""
  workers = np.zeros(len(topology.devices), int)
  for w, ranks in enumerate(topology.workers):
    workers[list(ranks)] = w
  return np.concatenate([workers, np.arange(len(topology.workers))])
