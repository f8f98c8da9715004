"""Shows the links that the doctor measured, and writes them to a file."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

from tf_cdops.base import version
from tf_cdops.cli import output
from tf_cdops.cli.measuring import link_results
from tf_cdops.cost import links_file

# Below this part of a link's rate alone, something is shared that is slower.
_SHARED = 0.7
_MOST_COLUMNS = 8  # Workers side by side in one table; of more, a list.


def content(links: Sequence[link_results.LinkMeasurement]) -> dict[str, Any]:
  """Returns what the file holds, and JSON for people's programs."""
  return {
      "version": links_file.FILE_VERSION,
      "tf_cdops": version.__version__,
      "summary": link_results.summarize(links),
      "slow": link_results.find_slow(links),
      "links": [dataclasses.asdict(link) for link in links],
  }


def show(links: Sequence[link_results.LinkMeasurement]) -> None:
  """Prints each link, what is common, and what is slow."""
  workers = link_results.workers_of(links)
  if len(workers) <= _MOST_COLUMNS:
    output.table("links, from row to column: µs of latency / MB/s",
                 ("from", *(f">to {worker}" for worker in workers)),
                 _matrix(links, workers))
  else:
    output.table("links: µs of latency / MB/s", ("from", "to", ">link"), [
        (*_ends(link), _cell(link)) for link in links])
  summary = link_results.summarize(links)
  for sentence in medians(summary):
    print(sentence)
  across = summary["across"]
  if across is not None:
    part = across["bytes_per_second"] / across["alone_bytes_per_second"]
    if part < _SHARED:
      print(f"SHARED: when all workers send at once, each has {part:.2f} of "
            "what one alone has: the switch between them, or their cores, are "
            "the limit.")
  for sentence in link_results.find_slow(links):
    print(f"SLOW: {sentence}.")


def medians(summary: Mapping[str, Any]) -> list[str]:
  """Returns a sentence for each kind of link that there is."""
  return [f"Medians {which} workers: {numbers['latency_seconds'] * 1e6:.0f} "
          f"µs, {numbers['bytes_per_second'] / 1e6:.0f} MB/s, and "
          f"{numbers['message_seconds'] * 1e6:.0f} µs for each further message "
          "at once."
          for which, numbers in summary.items() if numbers is not None]


def _matrix(links: Sequence[link_results.LinkMeasurement],
            workers: Sequence[str]) -> list[list[str]]:
  """Returns a row for each sender; a worker's own link is its first."""
  cells: dict[tuple[str, ...], str] = {}
  for link in links:
    cells.setdefault(_ends(link), _cell(link))
  return [[source, *(cells.get((source, target), "-") for target in workers)]
          for source in workers]


def _ends(link: link_results.LinkMeasurement) -> tuple[str, ...]:
  return tuple(map(link_results.worker_name, (link.source, link.target)))


def _cell(link: link_results.LinkMeasurement) -> str:
  return (f"{link.latency_seconds * 1e6:.0f} / "
          f"{link.bytes_per_second / 1e6:.0f}")
