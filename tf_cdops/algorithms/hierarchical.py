"""intra/inter: one algorithm inside each worker, another across workers."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tf_cdops import errors
from tf_cdops.algorithms import pair_traffic
from tf_cdops.algorithms import registry
from tf_cdops.fabric import base


def find(name: str) -> registry.Algorithm:
  """Returns the algorithm, or pair of algorithms, that `name` stands for."""
  first, *rest = name.split("/") if isinstance(name, str) else (name,)
  if not rest:
    return registry.registered(first)
  if len(rest) > 1:
    raise errors.AlgorithmError(
        f"`algorithm` ({name!r}) must be one name or a pair 'intra/inter', "
        f"and has {len(rest) + 1} parts.")
  return hierarchical(registry.registered(first), registry.registered(rest[0]))


@functools.lru_cache(maxsize=256)  # Asked for by every bucket of a plan.
def hierarchical(intra: registry.Algorithm,
                 inter: registry.Algorithm) -> registry.Algorithm:
  """Composes two algorithms into one, which is an algorithm like any other.

  Scattered, where `intra` has a reduce-scatter and an all-gather and all
  workers have as many devices: each worker scatters its sum over its devices,
  each device all-reduces its part with its peers in the other workers, and
  each worker gathers. So cross-worker traffic uses every device.

  Otherwise with leaders: each worker sums to one place, the leaders
  all-reduce, and each leader sends the result to its worker's devices.

  For W workers of G devices and n elements, in the two algorithms' own counts:
    steps: intra's for G devices, and inter's for W.
    moved: W times intra's for G devices, and inter's for W.
    across workers: inter's alone, which doesn't grow with G; scattered, each
      device carries inter's for n/G elements.
    needs: what both need, but `intra` only inside each worker.
  Workers of different sizes use leaders; the parts of a scattered sum are
  joined there. A worker with one device has nothing to do inside.

  References: the two algorithms' own; Jia et al., "Highly scalable deep
  learning training system with mixed-precision", 2018.
  """

  def all_reduce(fabric: base.Fabric, values: Sequence[Any],
                 group: base.Group) -> list[Any]:
    if len(group.workers) == 1:
      return intra.all_reduce(fabric, values, group)
    down, up = _phases(intra, group)
    parts = [down(fabric, [values[rank] for rank in ranks], group.worker(w))
             for w, ranks in enumerate(group.workers)]
    for c, peers in enumerate(zip(*parts, strict=True)):
      sums = inter.all_reduce(fabric, peers, _peers(group, peers, c))
      for worker_parts, total in zip(parts, sums, strict=True):
        worker_parts[c] = total
    results = dict(
        pair for w, ranks in enumerate(group.workers)
        for pair in zip(ranks, up(fabric, parts[w], group.worker(w)),
                        strict=True))
    return [results[rank] for rank in range(len(values))]

  # With two ways down, `traffic` doesn't tell which of them it is.
  known = intra.traffic and inter.traffic and not (
      intra.reduce and intra.reduce_scatter)
  return registry.Algorithm(
      name=f"{intra.name}/{inter.name}",
      description=f"{intra.name} inside a worker, {inter.name} across.",
      all_reduce=all_reduce,
      traffic=(functools.partial(pair_traffic.traffic, intra, inter)
               if known else None),
      modelled=intra.modelled or inter.modelled,
      pair=(intra, inter))


def _phases(intra: registry.Algorithm, group: base.Group
            ) -> tuple[Callable[..., list[Any]], Callable[..., list[Any]]]:
  """Returns the way down to parts of the sum, and the way back up."""
  sizes = {len(ranks) for ranks in group.workers}
  scatter, gather = intra.reduce_scatter, intra.all_gather
  if scatter and gather and len(sizes) == 1:
    return scatter, gather

  def down(fabric: base.Fabric, values: Sequence[Any],
           group: base.Group) -> list[Any]:
    if len(values) == 1:
      return list(values)
    leader = group.shard % len(values)
    if intra.reduce:
      return [intra.reduce(fabric, values, group)]
    if scatter:
      parts = scatter(fabric, values, group)
      return [fabric.concat(parts, group.places[leader])]
    return [intra.all_reduce(fabric, values, group)[leader]]

  def up(fabric: base.Fabric, parts: Sequence[Any],
         group: base.Group) -> list[Any]:
    if len(group.places) > 1 and intra.broadcast:
      return intra.broadcast(fabric, parts[0], group)
    return [fabric.copy(parts[0], place) for place in group.places]

  return down, up


def _peers(group: base.Group, values: Sequence[base.Value],
           part: int) -> base.Group:
  return group.across([value.place for value in values], group.shard + part)
