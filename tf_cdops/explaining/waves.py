"""The transfers of an all-reduce: by formula, or by tracing."""

import collections
import dataclasses

import numpy as np

from tf_cdops.algorithms import native
from tf_cdops.algorithms import registry
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib
from tf_cdops.fabric import tracing

# How numbers were got, from the surest to the least sure.
BASES = ("exact", "traced", "modelled", "extrapolated")
# A trace takes time with the square of the devices.
_MOST_TRACED = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Waves:
  """Transfers, in the order in which they wait for each other.

  Attributes:
    waves: each waits for the one before.
    basis: one of BASES.
  """

  waves: tuple[traffic_lib.Wave, ...]
  basis: str


def of_all_reduce(algorithm: registry.Algorithm, length: int,
                  group: base.Group) -> Waves | None:
  """Returns the waves; None if there is no formula and tracing takes long."""
  if algorithm.traffic:
    return Waves(algorithm.traffic(length, group).waves,
                 "modelled" if algorithm.modelled else "exact")
  if len(group.places) <= _MOST_TRACED:
    return _traced(algorithm, length, group)
  return None


def _traced(algorithm: registry.Algorithm, length: int,
            group: base.Group) -> Waves:
  fabric = tracing.TracingFabric()
  values = [fabric.replica(i, length, place)
            for i, place in enumerate(group.places)]
  results = algorithm.all_reduce(fabric, values, group)
  links: dict[int, list[tuple[int, int, int]]] = collections.defaultdict(list)
  for transfer in fabric.transfers:
    links[transfer.step].append(
        (group.endpoint(transfer.source), group.endpoint(transfer.target),
         transfer.elements))
  rows = {step: [traffic_lib.wave(1, *np.array(links[step]).T)]
          for step in links}
  for step in fabric.native_steps:
    own = base.Group(step.places, (tuple(range(len(step.places))),), ())
    places = np.array([group.endpoint(place) for place in step.places])
    rows.setdefault(step.step, []).extend(
        wave.moved_to(places)
        for wave in native.traffic(step.elements, own).waves)
  waves = [wave for step in range(1, max(r.step for r in results) + 1)
           for wave in traffic_lib.side_by_side(
               (wave,) for wave in rows.get(step, ()))]
  return Waves(tuple(waves), "modelled" if fabric.native_steps else "traced")
