"""Writes what was measured between hosts into README and docs.

    python -m benchmarks.links.pages

Two tables, from links.json. "which spec" is for which network: the choices are
the model's, times are measured, in bold, where there are any, and else
predicted. "speed" holds `auto` against others.
"""

import itertools
import json
import pathlib
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks import cells as all_cells
from benchmarks import workloads
from benchmarks.links import cells

import tf_cdops
from tf_cdops import cost
from tf_cdops.explaining import text_table
from tf_cdops.planning import auto_rules
from tf_cdops.planning import spec

_ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = _ROOT / "benchmarks" / "links.json"
PAGES = _ROOT / "README.md", _ROOT / "docs" / "several_machines.md"
_HOSTS = (4, 1), (8, 2)
_LOADS = {"one": "one of 64 MB", "big": "4 of 16 MB", "resnet": "ResNet-50",
          "small": "500 of 1 KB"}
_CABLES = {cells.SLOW: "200 Mbit/s", cells.FAST: "1 Gbit/s"}
_PRESETS = "10gbe", "100gbe", "infiniband"
_SPEED_HOSTS = (4, 1), (8, 1), (4, 2)
_SPEED_LOADS = _LOADS | {"uneven": "one of 16 MB, 60 of 4 KB",
                         "mobilenet": "MobileNetV2"}


def tables() -> dict[str, str]:
  """Returns the tables, by what their places in pages are called."""
  content = json.loads(RESULTS.read_text(encoding="utf-8"))
  measured = {one.cell: one for one in map(cells.Measured.from_dict,
                                           content["cells"])}
  return {"which spec": _which_spec(measured), "speed": _speed(measured)}


def _speed(measured: Mapping[cells.Cell, cells.Measured]) -> str:
  columns = list(itertools.product(_SPEED_HOSTS, _CABLES))
  rows = []
  for load, words in _SPEED_LOADS.items():
    row = [words]
    for (hosts, devices), rate in columns:
      found = measured.get(cells.Cell(hosts, devices, rate, load))
      row.append("" if found is None else "**{:.2f}** {} {}".format(
          *(_least_times(found, family) for family in (
              None, all_cells.MULTI_WORKER, all_cells.GLOO))))
    rows.append(row)
  return text_table.markdown(
      ("gradients", *(f"{hosts} x {devices}, {_CABLES[rate]}"
                      for (hosts, devices), rate in columns)), rows)


def _least_times(measured: cells.Measured, family: str | None) -> Any:
  """Returns the median, by `least`, of "auto" or of the best of a family."""
  some = [measured.auto] if family is None else measured.of(family)
  times = min((statistics.median(one.seconds) for one in some), default=None)
  if times is None:
    return "-"
  times /= measured.cell.least
  return times if family is None else f"{times:.2f}"


def _which_spec(measured: Mapping[cells.Cell, cells.Measured]) -> str:
  rows = []
  for hosts, devices in _HOSTS:
    for load, words in _LOADS.items():
      row = [f"{hosts} x {devices}", words]
      for rate in _CABLES:
        cell = cells.Cell(hosts, devices, rate, load)
        row.append(_choice(cell, _link(rate), measured.get(cell)))
      row += [_choice(cells.Cell(hosts, devices, "", load), cost.preset(name))
              for name in _PRESETS]
      rows.append(row)
  return text_table.markdown(
      ("hosts x devices", "gradients", *_CABLES.values(),
       *(f"`{name}`" for name in _PRESETS)), rows)


def page_with(text: str, contents: Mapping[str, str]) -> str:
  """Returns a page with the tables in their places, if it has such."""
  for name, content in contents.items():
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, found, rest = text.partition(begin)
    if found:
      _, _, after = rest.partition(end)
      text = f"{before}{begin}{content}\n{end}{after}"
  return text


def _link(rate: str) -> cost.Link:
  link = tf_cdops.LocalCluster(bandwidth=rate).link
  assert link is not None
  return link


def _choice(cell: cells.Cell, link: cost.Link,
            measured: cells.Measured | None = None) -> str:
  topology = tf_cdops.Topology.grid(cell.hosts, cell.devices,
                                    device_type="CPU")
  found = tf_cdops.explain(
      "auto", topology, [(size.shape, size.dtype)
                         for size in workloads.named(cell.load).sizes],
      network=cost.Network(**vars(cost.Network.common(topology))
                           | {"across": link}))
  if measured is None:
    times = f"{found.total.time.total / found.least.total:.2f}"
  else:
    median = statistics.median(measured.auto.seconds)
    times = f"**{median / measured.cell.least:.2f}**"
  return f"{_words(found.rules)}: {times}"


def _words(rules: Iterable[auto_rules.Rule]) -> str:
  """Returns which sizes go how, for people."""
  return "; ".join(
      (f"≤ {spec.format_bytes(rule.limit)} " if rule.limit else "")
      + f"`{rule.algorithm}{f'#{rule.shards}' * (rule.shards > 1)}`"
      + ", packed" * rule.pack for rule in rules)


if __name__ == "__main__":
  for page in PAGES:
    page.write_text(page_with(page.read_text(encoding="utf-8"), tables()),
                    encoding="utf-8")
