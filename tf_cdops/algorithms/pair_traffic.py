"""What a pair of algorithms moves over which link, as a formula.

All workers of one kind do the same inside, so one of each kind is asked.
"""

import dataclasses
import functools

import numpy as np

from tf_cdops.algorithms import registry
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib


@dataclasses.dataclass(frozen=True, eq=False)
class _Kind:
  """Workers that are alike.

  Attributes:
    example: one of them, as a group of its own.
    workers: their numbers.
    places: a row for each, its places in the whole group, its host's last.
  """

  example: base.Group
  workers: np.ndarray
  places: np.ndarray


def traffic(intra: registry.Algorithm, inter: registry.Algorithm, length: int,
            group: base.Group) -> traffic_lib.Traffic:
  """Returns what `hierarchical.hierarchical(intra, inter)` moves."""
  assert intra.traffic is not None
  if len(group.workers) == 1:
    return intra.traffic(length, group)
  kinds = _kinds(group.places, group.workers, group.hosts)
  scattered = bool(intra.reduce_scatter) and (
      len({len(kind.example.places) for kind in kinds}) == 1)
  down, up, columns = [], [], []
  for kind in kinds:
    inside = _inside(intra, length, dataclasses.replace(
        kind.example, shard=group.shard), scattered)
    down.append(tuple(w.moved_to(kind.places) for w in inside.down))
    up.append(tuple(w.moved_to(kind.places) for w in inside.up))
    columns.append(kind.places[:, inside.owners])
  held = np.concatenate(columns)[_order(kinds)]  # A row for each worker.
  return traffic_lib.Traffic(
      traffic_lib.side_by_side(down) + _across(inter, held, inside.lengths,
                                               group),
      traffic_lib.side_by_side(up), held.ravel(), np.array([length]))


def _across(inter: registry.Algorithm, held: np.ndarray, lengths: np.ndarray,
            group: base.Group) -> tuple[traffic_lib.Wave, ...]:
  """The all-reduce of each part, a column of `held`, across workers."""
  assert inter.traffic is not None
  names = group.places + group.hosts
  hosts = _host_numbers(group.places, group.hosts)
  rows = []
  for c, length in enumerate(lengths):
    if not length:
      continue
    peers = group.across([names[place] for place in held[:, c].tolist()],
                         group.shard + c)
    numbers = np.concatenate([held[:, c], hosts])
    part = inter.traffic(int(length), peers)
    rows.append(tuple(w.moved_to(numbers) for w in part.down + part.up))
  return traffic_lib.side_by_side(rows)


def _inside(intra: registry.Algorithm, length: int, group: base.Group,
            scattered: bool) -> traffic_lib.Traffic:
  """One worker's part, with numbers of its own places; see `_phases`."""
  assert intra.traffic is not None
  p = len(group.places)
  if p == 1:
    return traffic_lib.Traffic((), (), np.array([0]), np.array([length]))
  own = intra.traffic(length, group)
  if scattered or intra.reduce:
    return own
  leader = np.array([group.shard % p])
  joining = (traffic_lib.wave(1, own.owners, leader, own.lengths),
             ) if intra.reduce_scatter else own.up
  return traffic_lib.Traffic(
      own.down + joining,
      (traffic_lib.wave(1, leader, np.arange(p), length),),
      leader, np.array([length]))


@functools.lru_cache(maxsize=16)
def _kinds(places: tuple[str, ...], workers: tuple[tuple[int, ...], ...],
           hosts: tuple[str, ...]) -> tuple[_Kind, ...]:
  group = base.Group(places, workers, hosts)
  numbers = _host_numbers(places, hosts)
  alike: dict[tuple[int, int], list[int]] = {}
  for w in range(len(workers)):
    inside = group.worker(w)
    kind = len(inside.places), inside.endpoint(hosts[w])
    alike.setdefault(kind, []).append(w)
  return tuple(
      _Kind(group.worker(members[0]), np.array(members),
            np.array([[*workers[w], numbers[w]] for w in members]))
      for members in alike.values())


@functools.lru_cache(maxsize=16)
def _order(kinds: tuple[_Kind, ...]) -> np.ndarray:
  return np.argsort(np.concatenate([kind.workers for kind in kinds]))


@functools.lru_cache(maxsize=16)
def _host_numbers(places: tuple[str, ...],
                  hosts: tuple[str, ...]) -> np.ndarray:
  group = base.Group(places, (), hosts)
  return np.array([group.endpoint(host) for host in hosts])
