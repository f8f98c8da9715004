"""The parts of a run: each measures one thing, in processes of its own."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from benchmarks import cells
from benchmarks import children
from benchmarks import workers

# Where results go. Each task adds a list of dicts to one of them.
SECTIONS = ("cells", "memory", "scaling", "explaining", "crossing")
_LIMIT = 900.0
_MORE_SECONDS = 45.0  # For more steps, where these are quick.
_MANY = (512, 8)  # Workers, and devices of each, to explain.
_CROSSING = ("auto", "xring", "rechd", "pscpu/pscpu", "xring/rechd",
             "ps#2")


@dataclasses.dataclass(frozen=True)
class Task:
  """Something to measure; `run` returns what the section gets."""

  name: str
  section: str
  run: Callable[[], list[dict[str, Any]]]

  def __str__(self) -> str:
    return self.name


def all_tasks(quick: bool, torch_python: str | None) -> list[Task]:
  """Returns the tasks in the order in which they run."""
  rounds, seconds = (5, 0.0) if quick else (30, _MORE_SECONDS)
  chosen = cells.quick_cells() if quick else cells.all_cells()
  found = [Task(str(cell), "cells", functools.partial(
      _cell, cell, rounds, seconds, torch_python)) for cell in chosen]
  memory = [("resnet", 2)] if quick else [
      (load, devices) for load in ("resnet", "bert") for devices in (2, 4)]
  found += [Task(f"memory/{load}/{devices}", "memory",
                 functools.partial(_memory, load, devices))
            for load, devices in memory]
  points = [(2, 50), (4, 50)] if quick else [
      (2, 200), (4, 200), (8, 50), (8, 200), (8, 800), (16, 200)]
  found += [Task(f"scaling/{devices}x{tensors}", "scaling",
                 functools.partial(_scaling, devices, tensors, rounds))
            for devices, tensors in points]
  return [*found,
          Task("explaining", "explaining", _explaining),
          Task("crossing", "crossing", _crossing)]


def _cell(cell: cells.Cell, rounds: int, seconds: float,
          torch_python: str | None) -> list[dict[str, Any]]:
  if cell.mode == cells.WORKERS:
    # Steps take long enough for fewer of them to do.
    return [workers.measure(cell, min(rounds, 20), torch_python).to_dict()]
  if cell.mode == cells.EAGER:
    rounds = min(rounds, 20)
  return [_ask("benchmarks.local_cell", {
      "do": "measure", "cell": dataclasses.asdict(cell), "rounds": rounds,
      "seconds": seconds})]


def _memory(load: str, devices: int) -> list[dict[str, Any]]:
  return [_ask("benchmarks.memory_cell", {
      "do": "measure", "contender": name, "load": load, "devices": devices})
          for name in _contenders()]


@functools.cache
def _contenders() -> tuple[str, ...]:
  return tuple(_ask("benchmarks.memory_cell", {"do": "names"})["names"])


def _scaling(devices: int, tensors: int, rounds: int) -> list[dict[str, Any]]:
  # A ring's nodes grow with the square of devices: few tensors will do.
  asked = [(tensors, ["auto"])]
  if tensors <= 50:
    asked.append((4, ["xring", "xring#2"]))
  return [point for count, specs in asked
          for point in _ask("benchmarks.scaling_cell", {
              "do": "measure", "devices": devices, "tensors": count,
              "specs": specs, "rounds": rounds})["points"]]


def _explaining() -> list[dict[str, Any]]:
  asked = {"workers": _MANY[0], "devices": _MANY[1]}
  return [asked | _ask("benchmarks.scaling_cell", {"do": "explain"} | asked)]


def _crossing() -> list[dict[str, Any]]:
  with children.Child("benchmarks.scaling_cell") as child:
    return [child.ask({"do": "crossing", "spec": spec, "workers": count,
                       "devices": 2}, _LIMIT)
            for spec in _CROSSING for count in (2, 3)]


def _ask(module: str, request: dict[str, Any]) -> dict[str, Any]:
  """Asks a new process, for which TensorFlow's settings are fresh."""
  with children.Child(module) as child:
    return child.ask(request, _LIMIT)
