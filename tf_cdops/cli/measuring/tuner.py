"""Tunes a load on a site: searches by size, composes, and races "auto"."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from tf_cdops import cost
from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import link_results
from tf_cdops.cli.measuring import links
from tf_cdops.cli.measuring import races
from tf_cdops.cli.measuring import search
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import tuning
from tf_cdops.cost import given
from tf_cdops.cost import links_file
from tf_cdops.execution import executor
from tf_cdops.explaining import parts
from tf_cdops.planning import auto_rules
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib
from tf_cdops.registry import requirements

AUTO = tuning.Setting(spec_lib.parse(spec_lib.AUTO), planner.Packing())
_SEARCHING = 0.6  # The part of the time that goes into the search.
_LINKS, _MOST_LINKS_SECONDS = 0.2, 12.0  # The part of that for links.
_SAMPLE = 32  # Tensors of a class that stand for all of it in the search.
# Tried first on one machine's CPUs, since time may run out: what most often
# wins there.
_FIRST = ("ps", "pscpu", "hierarchical_copy")


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What tuning came to.

  Attributes:
    composed: the best ways of all sizes, put together.
    found: for each class of sizes, the seconds of each way that was tried.
    untried: how many ways there was no time for.
    race: None if the composed choice is what "auto" does anyway.
    interrupted: whether it ended early; then nothing is composed.
    links: those between workers, by which "auto" chose; None if there is one
      worker.
    wires: what became of those that the user allows.
  """

  composed: tuning.Setting
  found: Mapping[tuning.SizeClass, Mapping[planner.Choice, float]]
  untried: int
  race: races.Race | None
  interrupted: bool = False
  links: given.MeasuredLinks | None = None
  wires: tuple[races.WireTrial, ...] = ()

  @property
  def without_wire(self) -> tuning.Setting:
    """The composed choice if it surely is quicker, else "auto"."""
    if self.race and self.race.verdict.better and not self.race.wrong:
      return self.composed
    return AUTO

  @property
  def advice(self) -> tuning.Setting:
    """The same, or "auto" with the best wire if that surely is quicker."""
    paying = [trial for trial in self.wires if trial.pays]
    if not paying:
      return self.without_wire
    best = min(paying, key=lambda one: one.race.verdict.ratio
               if one.race else 1.0)
    return dataclasses.replace(AUTO, wire=best.wire)


def tune(site: sites.Site, sizes: Sequence[planner.TensorSize],
         seconds: float,
         on_candidate: Callable[[planner.Choice], object] = lambda _: None,
         wires: Sequence[registry.Wire] = ()) -> Outcome:
  """Finds the quickest spec for a load.

  Between workers, the links are measured first. "auto" with each wire then
  runs against the best without.

  Args:
    site: the devices.
    sizes: the tensors that travel together.
    seconds: how long it may take; what is being built then is finished, and
      a few pairs of steps are run in any case.
    on_candidate: called before each candidate is tried.
    wires: those that may be recommended.
  """
  end = time.monotonic() + seconds
  try:
    measured = _measure_links(site, seconds)
  except KeyboardInterrupt:
    return Outcome(AUTO, {}, 0, None, interrupted=True)
  network = measured or site.link
  names = algorithms(site.topology, sizes, network)
  classes = tuning.size_classes([size.num_bytes or 0 for size in sizes])
  found: dict[tuning.SizeClass, dict[planner.Choice, float]] = {}
  untried = 0
  for i, size_class in enumerate(classes):
    left = end - time.monotonic() - (1 - _SEARCHING) * seconds
    ways = tuning.candidates(size_class, names)
    try:
      found[size_class] = _search(site, sizes, size_class, ways,
                                  left / (len(classes) - i), on_candidate)
    except KeyboardInterrupt:
      return Outcome(AUTO, found, untried, None, True, measured)
    untried += len(ways) - len(found[size_class])
  return _raced(Outcome(tuning.compose(found), found, untried, None,
                        links=measured),
                exact_inputs.make(site, sizes), network, end, wires)


def _raced(outcome: Outcome, inputs: exact_inputs.Inputs,
           network: given.Given | None, end: float,
           wires: Sequence[registry.Wire]) -> Outcome:
  """Runs what was composed against "auto", and wires against the better."""
  planned = [races.plan(choice, inputs, network).buckets
             for choice in (AUTO, outcome.composed)]
  left = end - time.monotonic()  # For this race, and for each wire's.
  if planned[0] != planned[1]:
    outcome = dataclasses.replace(outcome, race=races.race(
        AUTO, outcome.composed, inputs, network,
        end - left * len(wires) / (1 + len(wires))))
  return dataclasses.replace(
      outcome, wires=_try_wires(outcome, wires, inputs, network, end))


def _try_wires(outcome: Outcome, wires: Sequence[registry.Wire],
               inputs: exact_inputs.Inputs, network: given.Given | None,
               end: float) -> tuple[races.WireTrial, ...]:
  """Runs each wire that "auto" would use against the best without."""
  trials = []
  for i, wire in enumerate(wires):
    choice, now = dataclasses.replace(AUTO, wire=wire), time.monotonic()
    is_used = any(bucket.wired
                  for bucket in races.plan(choice, inputs, network).buckets)
    trials.append(races.WireTrial(wire, races.race(
        outcome.without_wire, choice, inputs, network,
        now + (end - now) / (len(wires) - i)) if is_used else None))
  return tuple(trials)


def algorithms(topology: topology_lib.Topology,
               sizes: Sequence[planner.TensorSize],
               network: given.Given | None = None) -> list[str]:
  """Returns what can run on these devices, the most promising first.

  Pairs only where workers have several devices; elsewhere they add nothing.

  Args:
    topology: the devices.
    sizes: the tensors.
    network: the links, or the one between workers, if they are known.
  """
  names = [algorithm.name for algorithm in registry.all_reduce_algorithms()]
  names += auto_rules.pairs(topology, names)
  machine = executor.machine()
  fitting = [name for name in names if not requirements.unmet(
      registry.lookup(name), topology, machine)]
  if topology.is_one_cpu:  # Nothing crosses a link: the model doesn't tell.
    return sorted(fitting, key=lambda name: (
        _FIRST.index(name) if name in _FIRST else len(_FIRST)))
  model = cost.Model(topology, given.resolve(network, topology))
  known = [name for name in fitting if model.knows(registry.lookup(name))]
  costs = parts.PlanCosts(model, sizes).spec_costs(known)
  found = sorted(costs, key=lambda one: one.time.total)
  return list(dict.fromkeys([one.spec for one in found] + fitting))


def _measure_links(site: sites.Site,
                   seconds: float) -> given.MeasuredLinks | None:
  """Returns the links between several workers, in a part of the time."""
  if len(site.topology.workers) == 1:
    return None
  measured = links.measure(site, min(_LINKS * seconds, _MOST_LINKS_SECONDS))
  return links_file.from_summary(link_results.summarize(measured),
                                 f"the links among {site}", "summary")


def _search(site: sites.Site, sizes: Sequence[planner.TensorSize],
            size_class: tuning.SizeClass, ways: Sequence[planner.Choice],
            seconds: float,
            on_candidate: Callable[[planner.Choice], object]
            ) -> dict[planner.Choice, float]:
  stride = -(-len(size_class.tensors) // _SAMPLE)
  sample = size_class.tensors[::stride]
  inputs = exact_inputs.make(site, [sizes[i] for i in sample])
  times = search.search(inputs, ways, seconds, on_candidate)
  scale = len(size_class.tensors) / len(sample)
  return {candidate: one * scale for candidate, one in times.items()}
