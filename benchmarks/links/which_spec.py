"""Writes "which spec for which network" into README and docs.

    python -m benchmarks.links.which_spec

The choices are those of the model; times are measured, in bold, where
links.json has them, and else predicted.
"""

import json
import pathlib
import statistics
from collections.abc import Iterable

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
BEGIN, END = "<!-- which spec -->\n", "<!-- /which spec -->"
_HOSTS = (4, 1), (8, 2)
_LOADS = {"one": "one of 64 MB", "big": "4 of 16 MB", "resnet": "ResNet-50",
          "small": "500 of 1 KB"}
_CABLES = {cells.SLOW: "200 Mbit/s", cells.FAST: "1 Gbit/s"}
_PRESETS = "10gbe", "100gbe", "infiniband"


def table() -> str:
  """Returns the table, with the times of links.json."""
  content = json.loads(RESULTS.read_text(encoding="utf-8"))
  measured = {one.cell: one for one in map(cells.Measured.from_dict,
                                           content["cells"])}
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


def page_with(text: str, content: str) -> str:
  """Returns a page with the table in its place."""
  before, _, rest = text.partition(BEGIN)
  _, _, after = rest.partition(END)
  return f"{before}{BEGIN}{content}\n{END}{after}"


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
    page.write_text(page_with(page.read_text(encoding="utf-8"), table()),
                    encoding="utf-8")
