"""Keeps the plans of the latest batches, so that a user can save them."""

import os
from typing import NamedTuple

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib
from tf_cdops.planning import spec_file

_MOST = 64  # A long run may have ever new shapes.


class _Planned(NamedTuple):
  plan: planner.Plan
  sizes: tuple[planner.TensorSize, ...]
  topology: topology_lib.Topology


class RecentPlans:
  """The plans that were followed last, each once."""

  def __init__(self) -> None:
    # By the plan's id, which is quick: `executor.checked_plan` returns the
    # same object for the same batch.
    self._latest: dict[int, _Planned] = {}

  def add(self, plan: planner.Plan, sizes: tuple[planner.TensorSize, ...],
          topology: topology_lib.Topology) -> None:
    """Takes note of a plan, and forgets the oldest if there are many."""
    self._latest.pop(id(plan), None)
    self._latest[id(plan)] = _Planned(plan, sizes, topology)
    for oldest in list(self._latest)[:-_MOST]:
      self._latest.pop(oldest, None)  # Other threads may do so, too.

  def save(self, path: str | os.PathLike[str], spec: spec_lib.AllReduceSpec,
           packing: planner.Packing,
           network: given_links.Given | None,
           wire: registry.Wire | None = None) -> None:
    """Writes them, and by what they were planned, for "@file.json"."""
    planned = list(self._latest.values())
    if not planned:
      raise errors.InputError(
          f"`path` ({os.fspath(path)!r}) must be given after a first step: "
          "nothing has been all-reduced yet, so there is no plan to save.")
    plans = {}
    for one in planned:
      pinned = planner.to_pin(*one)
      plans[pinned.batch] = pinned
    widest = max((one.topology for one in planned),
                 key=lambda topology: len(topology.workers))
    links = given_links.uncommon(
        given_links.resolve(network or spec.network, widest), widest)
    spec_file.write(path, spec_file.content(str(spec), packing, links,
                                            list(plans.values()), wire))
