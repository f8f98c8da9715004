"""Finds in a profile's events what ran, where, and in which run of a function.

TensorFlow's executor has one loop for each device that a function spans. A
profile tells which loop a kernel ran in, and which run of the function the loop
belonged to, but no device. That is told by what the loop sends, whose key names
it, or else by the devices that the graph gives to the ops of those names.
"""

import collections
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

MARK = "tf_cdops_step"  # What a timeline calls the steps that it marks.
SEND, RECEIVE = "_Send", "_Recv"
_LOOP = "ExecutorState::Process"
_START, _DONE = f"{_LOOP}Async::Start", f"{_LOOP}Async::Done"
_RUN = "FunctionRun"
_CALL = "EagerLocalExecute: "
_KERNEL = re.compile(r"([^:\s]+):(\w+)")


class Event(NamedTuple):
  """What a profiler has seen in a thread; times are seconds."""

  name: str
  start: float
  end: float
  stats: Mapping[str, Any] = {}


class Kernel(NamedTuple):
  """An op that ran.

  Attributes:
    name: its name in the graph that ran, with the scopes around it.
    op: its type.
    device: where; "" if nothing tells.
    start: when, in seconds.
    end: likewise.
    run: the number of the function's run.
    to: of a send, the op it is for.
    destination: of a send, the device it goes to.
    waits: whether it only waited, for something to arrive say, and kept no
      thread busy.
  """

  name: str
  op: str
  device: str
  start: float
  end: float
  run: int
  to: str = ""
  destination: str = ""
  waits: bool = False


class Mark(NamedTuple):
  """A step that was marked."""

  number: int
  start: float
  end: float


class Reading(NamedTuple):
  """What one process did.

  Attributes:
    kernels: what ran.
    runs: by number, from when to when the process called that function.
    marks: the steps that it marked.
    start: when the profile begins.
    end: when it ends.
    origin: what times are counted from, in nanoseconds since 1970: as seconds
      since then, they would be off by those of a short op.
  """

  kernels: tuple[Kernel, ...]
  runs: dict[int, tuple[float, float]]
  marks: tuple[Mark, ...]
  start: float
  end: float
  origin: int = 0

  def moved(self, seconds: float) -> "Reading":
    """Returns the same by a clock that is so much ahead."""
    return Reading(
        tuple(one._replace(start=one.start + seconds, end=one.end + seconds)
              for one in self.kernels),
        {run: (start + seconds, end + seconds)
         for run, (start, end) in self.runs.items()},
        tuple(Mark(number, start + seconds, end + seconds)
              for number, start, end in self.marks),
        self.start + seconds, self.end + seconds, self.origin)

  def without_step(self, number: int) -> "Reading":
    """Returns the same with a mark less."""
    return self._replace(marks=tuple(one for one in self.marks
                                     if one.number != number))

  def since(self, origin: int) -> "Reading":
    """Returns the same with times counted from another moment."""
    return self.moved((self.origin - origin) / 1e9)._replace(origin=origin)

  def to_json(self) -> list[Any]:
    """Returns it as lists, for `from_json`."""
    return [[list(one) for one in self.kernels], list(self.runs.items()),
            [list(mark) for mark in self.marks], self.start, self.end,
            self.origin]

  @classmethod
  def from_json(cls, given: Sequence[Any]) -> "Reading":
    kernels, runs, marks, *times = given
    return cls(tuple(Kernel(*one) for one in kernels),
               {run: (at[0], at[1]) for run, at in runs},
               tuple(Mark(*mark) for mark in marks), *times)


def read(threads: Iterable[Sequence[Event]], end: float,
         devices: Mapping[str, str], home: str = "",
         origin: int = 0) -> Reading:
  """Returns what the threads of a process did.

  Args:
    threads: the events of each, by a clock that the profile begins with.
    end: when it ends.
    devices: by the name of an op in a function's own graph, its device.
    home: the device of what nothing is known of.
    origin: when the profile begins, in nanoseconds since 1970.
  """
  found = _Found(devices, home)
  for events in threads:
    found.thread(sorted(events, key=lambda one: (one.start, -one.end)))
  return Reading(found.kernels(), found.runs, tuple(sorted(found.marks)),
                 0.0, end, origin)


class _Found:
  """What has been found so far; a loop is known by its run and a number."""

  def __init__(self, devices: Mapping[str, str], home: str):
    self._devices, self._home = devices, home
    self._in_loops: list[tuple[tuple[int, int], Kernel]] = []
    self._started: dict[tuple[str, int], list[Any]] = (
        collections.defaultdict(list))
    self._done: dict[tuple[str, int], list[float]] = (
        collections.defaultdict(list))
    self._votes: dict[tuple[int, int], collections.Counter[str]] = (
        collections.defaultdict(collections.Counter))
    self.runs: dict[int, tuple[float, float]] = {}
    self.marks: list[Mark] = []

  def thread(self, events: Sequence[Event]) -> None:
    """Takes the events of a thread, in order, the longer before the shorter."""
    around: list[Event] = []
    for event in events:
      while around and around[-1].end <= event.start:
        around.pop()
      if event.name == _LOOP or event.name.startswith(_CALL):
        around.append(event)
      elif event.name == _RUN:
        # Others are those of input pipelines, in threads of their own.
        for call in reversed(around):
          if call.name.startswith(_CALL):
            self.runs.setdefault(event.stats["id"], (call.start, call.end))
            break
      elif event.name == MARK:
        self.marks.append(Mark(event.stats["step_num"], event.start,
                               event.end))
      elif event.name == _DONE:
        self._done[event.stats["name"], event.stats["step_id"]].append(
            event.start)
      else:
        loop = next((one for one in reversed(around) if one.name == _LOOP),
                    None)
        if loop is not None and "id" in loop.stats:
          self._in_loop((loop.stats["id"], loop.stats.get("_c", 0)), event)

  def _in_loop(self, loop: tuple[int, int], event: Event) -> None:
    if event.name == _START:
      stats = event.stats
      self._started[stats["name"], stats["step_id"]].append(
          (loop, event.start, stats["kernel_type"]))
      return
    kernel = _KERNEL.fullmatch(event.name)
    if not kernel:
      return
    name, op = kernel.groups()
    to = destination = ""
    if op == SEND:
      source, _, destination, *_ = (
          str(event.stats.get("key", "")) + ";;;").split(";")
      to = str(event.stats.get("to", ""))
      if not source.startswith("/job:"):
        return  # A constant of a part of TensorFlow itself.
      self._votes[loop][source] += 1_000_000  # It is certain.
    elif device := self._device_in_graph(name):
      self._votes[loop][device] += 1
    self._in_loops.append((loop, Kernel(
        name, op, "", event.start, event.end, loop[0], to, destination)))

  def _device_in_graph(self, name: str) -> str | None:
    """Returns an op's device; where a function was inlined its names got more.

    The names of two functions' ops may end alike: the most that fits counts.
    """
    while name:
      if name in self._devices:
        return self._devices[name]
      _, _, name = name.partition("/")
    return None

  def kernels(self) -> tuple[Kernel, ...]:
    """Returns all of them, the earliest first."""
    found = [kernel._replace(device=self._device(loop))
             for loop, kernel in self._in_loops]
    for (name, run), starts in self._started.items():
      ends = sorted(self._done[name, run])
      for (loop, start, op), end in zip(
          sorted(starts, key=lambda one: one[1]), ends, strict=False):
        found.append(Kernel(name, op, self._device(loop), start,
                            max(start, end), run, waits=True))
    return tuple(sorted(found, key=lambda one: (one.start, one.end)))

  def _device(self, loop: tuple[int, int]) -> str:
    votes = self._votes.get(loop)
    return votes.most_common(1)[0][0] if votes else self._home
