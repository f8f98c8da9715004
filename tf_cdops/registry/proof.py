"""Proves an algorithm on given devices, without TensorFlow."""

import collections
import dataclasses

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.fabric import base
from tf_cdops.fabric import tracing


MOST_DEVICES = 64  # Tracing takes its time.
_OURS = "tf_cdops.algorithms."


@dataclasses.dataclass(frozen=True)
class Trace:
  """What one all-reduce did: every transfer, sum and native step of it."""

  length: int
  steps: int
  moved: int
  transfers: tuple[tracing.Transfer, ...]
  additions: tuple[tracing.Addition, ...]
  native_steps: tuple[tracing.NativeStep, ...]
  # How often a term was rounded on its way into the result, at most.
  roundings: int = 0
  # For each expression in a segment the replicas that it sums, a bit each.
  replicas: tuple[int, ...] = dataclasses.field(
      default=(), compare=False, repr=False)

  @property
  def busiest(self) -> int:
    """The most elements that any one device sends, or receives."""
    sent, received = collections.Counter[str](), collections.Counter[str]()
    for transfer in self.transfers:
      sent[transfer.source] += transfer.elements
      received[transfer.target] += transfer.elements
    return max([*sent.values(), *received.values()], default=0)

  def links(self) -> dict[tuple[str, str], int]:
    """Returns the elements that went from one device to another."""
    counts: dict[tuple[str, str], int] = collections.defaultdict(int)
    for transfer in self.transfers:
      counts[transfer.source, transfer.target] += transfer.elements
    return dict(counts)


def prove(algorithm: registry.Algorithm, topology: topology_lib.Topology,
          length: int, rotation: int = 0) -> Trace:
  """Runs an algorithm on the tracing fabric and checks what comes out.

  Args:
    algorithm: what to prove.
    topology: the devices to prove it on.
    length: the number of elements of each replica's value.
    rotation: the number by which roles rotate.

  Returns:
    The trace.

  Raises:
    ProofError: if an output isn't the sum of every replica's every element,
      each once and in place, or two devices get it by different expressions
      (and so perhaps in different bits).
  """
  fabric = tracing.TracingFabric()
  places = topology.devices
  values = [fabric.replica(i, length, place)
            for i, place in enumerate(places)]
  results = algorithm.all_reduce(fabric, values,
                                 base.Group.from_topology(topology, rotation))
  if [result.place for result in results] != list(places):
    raise errors.ProofError(
        f"{algorithm.name} must leave one result on each of {list(places)}, "
        f"and leaves them on {[result.place for result in results]}.")
  everyone = (1 << len(places)) - 1
  for result in results:
    _check_complete(fabric, result, length, everyone, algorithm.name)
    if result.segments != results[0].segments:
      raise errors.ProofError(
          f"{algorithm.name} sums in another order on {result.place} than on "
          f"{places[0]}, so their bits may differ.")
  return Trace(length, max(result.step for result in results),
               fabric.moved, tuple(fabric.transfers), tuple(fabric.additions),
               tuple(fabric.native_steps), max(
                   (fabric.roundings_of(segment.expression)
                    for result in results for segment in result.segments),
                   default=0), fabric.replicas)


def check_wired(algorithm: registry.Algorithm,
                topology: topology_lib.Topology) -> None:
  """Raises unless a wired algorithm, if it isn't ours, is proved there.

  Tests prove ours. Another's may be right without a wire, and leave replicas
  with different bits with one: if each of them adds up what it gets, say, its
  own term is the one that no message has rounded.

  Args:
    algorithm: a wired one.
    topology: the devices; of very many, nothing is proved.
  """
  if _is_ours(algorithm.name) or len(topology.devices) > MOST_DEVICES:
    return
  try:
    prove(algorithm, topology, len(topology.devices) * algorithm.shards)
  except errors.ProofError as error:
    raise errors.AlgorithmError(
        f"`wire` ({str(algorithm.wire)!r}) can't be had with "
        f"{algorithm.name!r}: {error} Use 'auto' or 'ps'.") from error


def _is_ours(name: str) -> bool:
  algorithm = registry.lookup(name.partition("#")[0])
  return all(one.all_reduce.__module__.startswith(_OURS)
             for one in algorithm.pair or (algorithm,))


def _check_complete(fabric: tracing.TracingFabric, result: tracing.TracedValue,
                    length: int, everyone: int, name: str) -> None:
  position = 0
  for segment in result.segments:
    if segment.start != position:
      raise errors.ProofError(
          f"{name} leaves element {segment.start} on {result.place} where "
          f"element {position} should be.")
    missing = everyone & ~fabric.replicas_of(segment.expression)
    if missing:
      raise errors.ProofError(
          f"{name} leaves elements {segment.start} to {segment.stop} of "
          f"replica {missing.bit_length() - 1} out on {result.place}.")
    position = segment.stop
  if position != length:
    raise errors.ProofError(
        f"{name} leaves {position} of {length} elements on {result.place}.")
