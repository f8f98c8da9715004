"""What one all-reduce uses of the links: by its formula, or by tracing it."""

import collections
import dataclasses
import functools
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
  group = base.Group.from_topology(topology, rotation)
  if algorithm.traffic:
    phases = list(algorithm.traffic(elements, group).phases)
    basis = "modelled" if algorithm.modelled else "exact"
  else:
    phases, basis = _traced(algorithm, elements, group)
  weight = CONTENTION if _are_contended(phases, topology) else 1
  return [_usage(phase, topology, itemsize, basis, weight)
          for phase in phases]


def count(algorithm: registry.Algorithm, topology: topology_lib.Topology,
          elements: int, itemsize: int = 1, rotation: int = 0) -> Usage:
  """Returns what one all-reduce uses in all."""
  return sum(count_by_phase(algorithm, topology, elements, itemsize, rotation),
             Usage.nothing(topology))


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


def _are_contended(phases: Sequence[registry.Phase],
                   topology: topology_lib.Topology) -> bool:
  """Whether any worker receives from several others."""
  worker_of, workers = _worker_of(topology), len(topology.workers)
  if workers < 3:
    return False
  flows = [(worker_of[p.sources] * workers + worker_of[p.targets])[
      p.elements > 0] for p in phases]
  sources, targets = np.divmod(np.unique(np.concatenate(
      [np.zeros(0, int), *flows])), workers)
  return bool((np.bincount(targets[sources != targets]) > 1).any())


def _usage(phase: registry.Phase, topology: topology_lib.Topology,
           itemsize: int, basis: str, weight: float) -> Usage:
  worker_of, workers = _worker_of(topology), len(topology.workers)
  crosses = worker_of[phase.sources] != worker_of[phase.targets]
  sizes = phase.num_bytes(itemsize, crosses)
  across = sizes * crosses
  latencies = np.zeros(2, int)
  latencies[int(across.any())] = phase.steps + phase.hidden
  ends = phase.sources, phase.targets
  # A link's payload goes in as many messages as there are steps.
  sent = (phase.elements > 0) * (phase.steps + phase.hidden)
  handled = np.array([
      np.bincount(worker_of[phase.sources], sent * ~crosses, workers),
      sum(np.bincount(worker_of[end], sent * crosses, workers)
          for end in ends)])
  coded = np.zeros(workers)
  if phase.wire is not None:
    passed = (phase.wire.codec.passes * itemsize * phase.elements
              * phase.are_coded(crosses))
    for end in ends:
      coded += np.bincount(worker_of[end], passed, workers)
  return Usage(
      phase.steps, latencies, int((sizes - across).sum()), int(across.sum()),
      np.array([np.bincount(end, sizes - across, len(worker_of))
                for end in ends]),
      np.array([np.bincount(worker_of[end], weight * across, workers)
                for end in ends]), handled, coded, len(sizes), basis)


@functools.lru_cache(maxsize=16)
def _worker_of(topology: topology_lib.Topology) -> np.ndarray:
  """The worker of each device, and then of each host."""
  workers = np.zeros(len(topology.devices), int)
  for w, ranks in enumerate(topology.workers):
    workers[list(ranks)] = w
  return np.concatenate([workers, np.arange(len(topology.workers))])
