"""A process that drives a cluster of TensorFlow servers: ours, in one graph."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from benchmarks import cells
from benchmarks import likely
from benchmarks import serving
from benchmarks import workloads
import tensorflow as tf

from tf_cdops import cluster as cluster_lib
from tf_cdops import cost
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import link_results
from tf_cdops.cli.measuring import links
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing

_SPECS = ("auto", "xring", "rechd")
_LINK_SECONDS = 6.0

_open = contextlib.ExitStack()
_clusters: list[cluster_lib.LocalCluster] = []
_sites: list[sites.Site] = []
_steps: dict[str, steps.Step] = {}


def join(workers: int, devices: int = 1,
         rate: str | None = None) -> dict[str, Any]:
  """Starts the servers, with cables if there is a rate."""
  tf.get_logger().setLevel("ERROR")
  cluster = _open.enter_context(
      cluster_lib.LocalCluster(workers, devices, bandwidth=rate, timeout=180))
  strategy = cluster_lib.multi_worker_strategy(cluster)
  _clusters.append(cluster)
  _sites.append(sites.Site(tuple(strategy.extended.worker_devices)))
  return {}


def set_rate(rate: str) -> dict[str, Any]:
  _clusters[0].set_bandwidth(rate)
  return {}


def measure_links() -> dict[str, Any]:
  """Returns the medians of all links, as TensorFlow's transfers see them."""
  return link_results.summarize(links.measure(_sites[0], _LINK_SECONDS))


def build(load: str, shapes: Any, rate: str | None = None,
          wires: Sequence[str] = ()) -> dict[str, Any]:
  """Builds every contender; says who there is.

  Args:
    load: its name.
    shapes: for others.
    rate: of the cables, or LOOPBACK, for which "auto" is to choose, and for
      which the specs are found that may be the best; None for the usual ones,
      on loopback.
    wires: instead of those specs, "auto" with each of them.
  """
  del shapes
  _steps.clear()
  site, sizes = _sites[0], workloads.named(load).sizes
  if rate == cells.LOOPBACK:
    site = dataclasses.replace(site, link=cost.preset(cells.LOOPBACK))
  elif rate is not None:
    _clusters[0].set_bandwidth(rate)
    site = dataclasses.replace(site, link=_clusters[0].link)
    _clusters[0].set_bandwidth(cells.NO_LIMIT)  # To build and to check.
  inputs = exact_inputs.make(site, sizes)
  if rate is None:
    # What a user of TensorFlow alone could do in one graph.
    one_device = contenders.Contender(
        "TF ReductionToOneDevice, in one graph", False,
        tf.distribute.ReductionToOneDevice)
    field = [steps.build(contender, inputs)
             for contender in (*map(contenders.of_spec, _SPECS), one_device)]
    field.append(steps.build_nothing(inputs))
    return {"contenders": [_describe(step, inputs) for step in field]}
  answers = []
  for way in (likely.wired(site.topology, sizes, site.link, wires) if wires
              else likely.ways(site.topology, sizes, site.link)):
    step = steps.build(contenders.of_spec(way.spec, way.packing, str(way),
                                          site.link, way.wire), inputs)
    answers.append(_describe(step, inputs) | {
        "plan": way.summary, "predicted": way.seconds,
        "messages": way.messages})
  serving.return_memory()
  return {"contenders": answers}


def _describe(step: steps.Step, inputs: exact_inputs.Inputs) -> dict[str, Any]:
  _steps[step.name] = step
  return {"contender": step.name, "family": _family(step),
          "wrong": steps.count_wrong(step, inputs),
          "build_seconds": step.build_seconds, "nodes": step.nodes}


def _family(step: steps.Step) -> str:
  if step.name == steps.NOTHING:
    return cells.NOTHING
  return cells.OURS if step.ours else cells.EXTRA


def step(contender: str) -> dict[str, Any]:
  return {"seconds": timing.seconds_of(_steps[contender].run)}


if __name__ == "__main__":
  serving.serve({"join": join, "set_rate": set_rate,
                 "measure_links": measure_links, "build": build,
                 "step": step})
