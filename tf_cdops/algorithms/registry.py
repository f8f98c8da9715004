"""The registry of all-reduce algorithms: names, what each needs, where found.

A third party's package adds its own with the entry-point group
`tf_cdops.algorithms`: each entry point names a module (or anything in one)
that calls `register_all_reduce` when it is imported.
"""

import dataclasses
import functools
import importlib.metadata
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from absl import logging

from tf_cdops import errors
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib

ENTRY_POINTS = "tf_cdops.algorithms"
RESERVED = ("auto",)
_NAME = re.compile(r"[A-Za-z][\w.-]*")

AllReduce = Callable[[Any, Sequence[Any], base.Group], list[Any]]


@dataclasses.dataclass(frozen=True, eq=False)  # One is like no other.
class Algorithm:
  """A way to all-reduce, and what it needs.

  Attributes:
    name: what a spec calls it.
    description: what it does, in one line.
    all_reduce: sums one value a place; returns one a place.
    device_types: the kinds of devices it runs on; None for any.
    single_worker: whether all devices must be on one worker.
    kernel: an op whose kernel TensorFlow must have for the devices.
    whole_devices: whether virtual GPUs, parts of one GPU, won't do.
    in_order: whether each element is summed in one place, in the order of
      replicas, so that its bits don't depend on packing, shards or sizes.
    reduce_scatter: (fabric, values, group) -> the sum, as parts in the order
      of the vector, each on some place of the group.
    all_gather: (fabric, parts, group) -> the whole, one a place.
    reduce: (fabric, values, group) -> the sum, on one place.
    broadcast: (fabric, value, group) -> the value, one a place.
    cost: (elements, group) -> what the trace will count, as a formula; it
      follows from `traffic` where that is given.
    traffic: (elements, group) -> what goes over which link, as a formula.
    steps_formula: the steps for p devices, for people.
    bytes_formula: what a device sends of n bytes, for people.
    modelled: whether TensorFlow does it out of sight: not proved, its cost a
      model.
    pair: for "intra/inter", the two algorithms.
  """

  name: str
  description: str
  all_reduce: AllReduce
  device_types: frozenset[str] | None = None
  single_worker: bool = False
  kernel: str | None = None
  whole_devices: bool = False
  in_order: bool = False
  reduce_scatter: Callable[..., list[Any]] | None = None
  all_gather: Callable[..., list[Any]] | None = None
  reduce: Callable[..., Any] | None = None
  broadcast: Callable[..., list[Any]] | None = None
  cost: Callable[[int, base.Group], base.Cost] | None = None
  traffic: Callable[[int, base.Group], traffic_lib.Traffic] | None = None
  steps_formula: str = ""
  bytes_formula: str = ""
  modelled: bool = False
  pair: "tuple[Algorithm, Algorithm] | None" = None

  def __post_init__(self) -> None:
    for first, second in (("reduce_scatter", "all_gather"),
                          ("reduce", "broadcast")):
      if (getattr(self, first) is None) != (getattr(self, second) is None):
        raise errors.AlgorithmError(
            f"`{first}` and `{second}` of {self.name!r} must be given "
            "together: each undoes the other.")
    traffic = self.traffic
    if traffic and not self.cost:
      object.__setattr__(
          self, "cost", lambda length, group: traffic(length, group).cost)

  @property
  def needs(self) -> str:
    """What it needs, in words; "any devices" if nothing."""
    parts = [" or ".join(sorted(self.device_types)) + " devices"
             if self.device_types else "any devices"]
    if self.single_worker:
      parts.append("one worker")
    if self.kernel:
      parts.append(f"the {self.kernel} kernel")
    if self.whole_devices:
      parts.append("no virtual GPUs")
    return ", ".join(parts)

  def __repr__(self) -> str:
    return f"<{self.name}: {self.description} Needs {self.needs}.>"


_algorithms: dict[str, Algorithm] = {}


def register_all_reduce(
    name: str, *, description: str,
    device_types: Iterable[str] | None = None, single_worker: bool = False,
    kernel: str | None = None, whole_devices: bool = False,
    override: bool = False, **phases: Any) -> Callable[[AllReduce], AllReduce]:
  """Registers the decorated function as the all-reduce algorithm `name`.

  Args:
    name: letters, digits and "_.-", beginning with a letter.
    description: what it does, in one line.
    device_types: the kinds of devices it runs on, such as ["GPU"].
    single_worker: whether all devices must be on one worker.
    kernel: an op whose kernel TensorFlow must have for the devices.
    whole_devices: whether virtual GPUs, parts of one GPU, won't do.
    override: replaces an algorithm of that name instead of raising.
    **phases: `reduce_scatter` and `all_gather`, `reduce` and `broadcast`,
      `cost`, `traffic`, `in_order`, `modelled`, `steps_formula`,
      `bytes_formula`: see `Algorithm`. The phases let pairs such as
      "xring/ps" make the most of it.

  Returns:
    A decorator that returns its function unchanged.
  """
  if not isinstance(name, str) or not _NAME.fullmatch(name) or (
      name in RESERVED):
    raise errors.AlgorithmError(
        f"`name` ({name!r}) must be letters, digits, '_', '.' or '-', begin "
        f"with a letter, and not be {RESERVED[0]!r}: '/' makes pairs, and '#', "
        "':' and '@' belong to the spec.")
  if isinstance(device_types, str):
    raise errors.AlgorithmError(
        f"`device_types` ({device_types!r}) must be a list of kinds, such as "
        "['GPU'].")
  if name in _algorithms and not override:
    raise errors.AlgorithmError(
        f"`name` ({name!r}) must not be registered already; pass "
        "override=True to replace it.")

  def register(function: AllReduce) -> AllReduce:
    _algorithms[name] = Algorithm(
        name, description, function,
        device_types=frozenset(device_types) if device_types else None,
        single_worker=single_worker, kernel=kernel,
        whole_devices=whole_devices, **phases)
    return function

  return register


def registered(name: str) -> Algorithm:
  """Returns the algorithm `name`, which isn't a pair."""
  _load_entry_points()
  if name not in _algorithms:
    raise errors.AlgorithmError(
        f"`algorithm` ({name!r}) must be one of "
        f"{', '.join(sorted(_algorithms))}, or a pair of them such as "
        f"'xring/ps'.{errors.did_you_mean(name, _algorithms)}")
  return _algorithms[name]


def all_reduce_algorithms() -> tuple[Algorithm, ...]:
  """Returns every registered algorithm, by name; any two make a pair."""
  _load_entry_points()
  return tuple(_algorithms[name] for name in sorted(_algorithms))


@functools.cache  # Once a process: a broken plugin is reported once.
def _load_entry_points() -> None:
  for entry_point in importlib.metadata.entry_points(group=ENTRY_POINTS):
    try:
      entry_point.load()
    except Exception as error:  # A plugin may raise anything.
      logging.warning(
          "The all-reduce algorithms of %r (%s) can't be loaded and are left "
          "out: %s: %s", entry_point.name, entry_point.value,
          type(error).__name__, error)
