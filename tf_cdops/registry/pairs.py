"""intra/inter: one algorithm inside each worker, another across workers."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_cdops.fabric import base
from tf_cdops.registry import algorithm as algorithm_lib
from tf_cdops.registry import traffic as traffic_lib

Algorithm = algorithm_lib.Algorithm
Traffic = traffic_lib.Traffic


@functools.lru_cache(maxsize=256)
def pair(intra: Algorithm, inter: Algorithm) -> Algorithm:
  """Composes two algorithms into one, which is an algorithm like any other.

  Scattered, where `intra` has a reduce-scatter and an all-gather and all
  workers have as many devices: each worker scatters its sum over its devices,
  each device all-reduces its part with its peers in the other workers, and
  each worker gathers. So inter-worker traffic uses every device.

  Otherwise with leaders: each worker sums to one device, the leaders
  all-reduce, and each leader sends the result to its worker's devices. Across
  workers goes what `inter` sends among as many devices as there are workers,
  however many each has. A worker with one device has nothing to do inside.

  Reference: Jia et al., "Highly scalable deep learning training system with
  mixed-precision", 2018.
  """

  def all_reduce(fabric: base.Fabric, values: Sequence[Any],
                 group: base.Group) -> list[Any]:
    if len(group.workers) == 1:
      return intra.all_reduce(fabric, values, group)
    down, up = _halves(intra, group)
    parts = [down(fabric, [values[rank] for rank in ranks], group.worker(w))
             for w, ranks in enumerate(group.workers)]
    for c, peers in enumerate(zip(*parts, strict=True)):
      sums = inter.all_reduce(fabric, peers, group.across(
          [value.place for value in peers], group.rotation + c))
      for worker_parts, total in zip(parts, sums, strict=True):
        worker_parts[c] = total
    return group.by_rank(
        [rank for ranks in group.workers for rank in ranks],
        [result for w, worker_parts in enumerate(parts)
         for result in up(fabric, worker_parts, group.worker(w))])

  # With two ways down, `traffic` doesn't tell which of them it is.
  known = intra.traffic and inter.traffic and not (
      intra.reduce and intra.reduce_scatter)
  return Algorithm(
      name=f"{intra.name}/{inter.name}",
      description=f"{intra.name} inside a worker, {inter.name} across.",
      all_reduce=all_reduce,
      traffic=functools.partial(_traffic, intra, inter) if known else None,
      modelled=intra.modelled or inter.modelled,
      pair=(intra, inter))


def on_one_worker(intra: Algorithm, across: Callable[[Any, Any, int], Any]
                  ) -> algorithm_lib.AllReduce:
  """Returns a worker's own side of a pair, for a program that has no other.

  Args:
    intra: what sums inside the worker.
    across: (fabric, part, number) -> the part's sum over all workers, where
      the part is. All workers have the same parts on the same devices.
  """

  def all_reduce(fabric: base.Fabric, values: Sequence[Any],
                 group: base.Group) -> list[Any]:
    if values[0].length == 0:
      return list(values)
    down, up = _halves(intra, group)
    sums = [across(fabric, part, c)
            for c, part in enumerate(down(fabric, values, group))]
    return up(fabric, sums, group)

  return all_reduce


def _scatters(intra: Algorithm, group: base.Group) -> bool:
  return bool(intra.reduce_scatter) and (
      len({len(ranks) for ranks in group.workers}) == 1)


def _halves(intra: Algorithm, group: base.Group
            ) -> tuple[Callable[..., list[Any]], Callable[..., list[Any]]]:
  """Returns the way to parts of the sum, and the way back to all devices."""
  if _scatters(intra, group):
    assert intra.reduce_scatter
    assert intra.all_gather
    return intra.reduce_scatter, intra.all_gather

  def down(fabric: base.Fabric, values: Sequence[Any],
           group: base.Group) -> list[Any]:
    if len(values) == 1:
      return list(values)
    leader = group.rotation % len(values)
    if intra.reduce:
      return [intra.reduce(fabric, values, group)]
    if intra.reduce_scatter:
      parts = intra.reduce_scatter(fabric, values, group)
      return [fabric.concat(parts, group.places[leader])]
    return [intra.all_reduce(fabric, values, group)[leader]]

  def up(fabric: base.Fabric, parts: Sequence[Any],
         group: base.Group) -> list[Any]:
    if len(group.places) > 1 and intra.broadcast:
      return intra.broadcast(fabric, parts[0], group)
    return [fabric.copy(parts[0], place) for place in group.places]

  return down, up


def _traffic(intra: Algorithm, inter: Algorithm, length: int,
             group: base.Group) -> Traffic:
  """The pair's traffic; of workers that are alike inside, one is asked."""
  assert intra.traffic
  assert inter.traffic
  if len(group.workers) == 1:
    return intra.traffic(length, group)
  down, up = [], []
  held: list[Any] = [None] * len(group.workers)  # Ranks of the parts.
  for members, ranks in _alike(group.places, group.workers, group.hosts):
    inside = _inside(intra, length, group.worker(members[0]),
                     _scatters(intra, group))
    down.append(tuple(p.mapped(ranks) for p in inside.down))
    up.append(tuple(p.mapped(ranks) for p in inside.up))
    for worker, owners in zip(members, ranks[:, inside.owners], strict=True):
      held[worker] = owners
  names, rows = group.places + group.hosts, []
  hosts, beside = _host_numbers(group.places, group.hosts), set(group.hosts)
  # Of parts of one length, after as many as there are workers roles come round;
  # but where hosts are among the places, they have other numbers, and may be
  # one and the same.
  known: dict[tuple[int, int], tuple[traffic_lib.Phase, ...]] = {}
  for c, (peers, part) in enumerate(zip(np.transpose(held), inside.lengths,
                                        strict=True)):
    places = [names[rank] for rank in peers.tolist()]
    across, ranks = (group.across(places, group.rotation + c),
                     np.concatenate([peers, hosts]))
    if not beside.isdisjoint(places):
      found = inter.traffic(int(part), across).phases
      rows.append(tuple(p.mapped(ranks) for p in found))
      continue
    key = int(part), across.rotation % len(places)
    if key not in known:
      known[key] = inter.traffic(int(part), across).phases
    rows.append(tuple(p.renamed(ranks) for p in known[key]))
  return Traffic(traffic_lib.side_by_side(down)
                 + traffic_lib.side_by_side(rows),
                 traffic_lib.side_by_side(up))


def _inside(intra: Algorithm, length: int, group: base.Group,
            scattered: bool) -> Traffic:
  """One worker's traffic, by its own ranks; see `_halves`."""
  assert intra.traffic
  p = len(group.places)
  if p == 1:
    return Traffic((), (), np.array([0]), np.array([length]))
  own = intra.traffic(length, group)
  if scattered or intra.reduce:
    return own
  leader = np.array([group.rotation % p])
  to_leader = (traffic_lib.phase(1, own.owners, leader, own.lengths),
               ) if intra.reduce_scatter else own.up
  return Traffic(
      own.down + to_leader,
      (traffic_lib.phase(1, leader, np.arange(p), length),),
      leader, np.array([length]))


@functools.lru_cache(maxsize=16)
def _alike(places: tuple[str, ...], workers: tuple[tuple[int, ...], ...],
           hosts: tuple[str, ...]) -> list[tuple[list[int], np.ndarray]]:
  """Groups workers that are alike: their numbers, and each one's ranks.

  The host's number comes after those of the devices.
  """
  group, numbers = base.Group(places, workers, hosts), _host_numbers(
      places, hosts)
  alike: dict[tuple[int, int], list[int]] = {}
  for w in range(len(workers)):
    inside = group.worker(w)
    kind = len(inside.places), inside.endpoint(hosts[w])
    alike.setdefault(kind, []).append(w)
  return [(members, np.array([[*workers[w], numbers[w]] for w in members]))
          for members in alike.values()]


@functools.lru_cache(maxsize=16)
def _host_numbers(places: tuple[str, ...],
                  hosts: tuple[str, ...]) -> np.ndarray:
  group = base.Group(places, (), hosts)
  return np.array([group.endpoint(host) for host in hosts])
