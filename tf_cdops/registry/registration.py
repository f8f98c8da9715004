"""Registers all-reduce algorithms, and finds them by name.

A third party's package adds its own with the entry-point group
`tf_cdops.algorithms`: each entry point names a module (or anything in one)
that calls `register_all_reduce` when it is imported.
"""

import functools
import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any

from tf_cdops.base import errors
from tf_cdops.registry import algorithm as algorithm_lib
from tf_cdops.registry import composition
from tf_cdops.registry import pairs
from tf_cdops.registry import plugins

Algorithm = algorithm_lib.Algorithm
AllReduce = algorithm_lib.AllReduce

ENTRY_POINTS = "tf_cdops.algorithms"
RESERVED = ("auto",)
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_OURS = "tf_cdops.algorithms"

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
      `traffic`, `in_order`, `modelled`: see `Algorithm`. The phases let pairs
      such as "xring/ps" make the most of it.

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
  importlib.import_module(_OURS)  # Names that are taken.
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


def lookup(name: str, shards: int | None = None) -> Algorithm:
  """Returns the algorithm, or pair of algorithms, that `name` stands for.

  Args:
    name: of one that is registered, or of two with "/" between them.
    shards: in how many parts it is to sum; None for as it is.
  """
  if shards is not None:
    return composition.sharded(lookup(name), shards)
  first, *rest = name.split("/") if isinstance(name, str) else (name,)
  if not rest:
    return _registered(first)
  if len(rest) > 1:
    raise errors.AlgorithmError(
        f"`algorithm` ({name!r}) must be one name or a pair 'intra/inter', "
        f"and has {len(rest) + 1} parts.")
  return pairs.pair(_registered(first), _registered(rest[0]))


def all_reduce_algorithms() -> tuple[Algorithm, ...]:
  """Returns every registered algorithm, by name; any two make a pair."""
  _load()
  return tuple(_algorithms[name] for name in sorted(_algorithms))


def _registered(name: str) -> Algorithm:
  _load()
  if name not in _algorithms:
    raise errors.AlgorithmError(
        f"`algorithm` ({name!r}) must be one of "
        f"{', '.join(sorted(_algorithms))}, or a pair of them such as "
        f"'xring/ps'.{errors.did_you_mean(name, _algorithms)}")
  return _algorithms[name]


@functools.cache  # Once per process: a broken plugin is reported once.
def _load() -> None:
  importlib.import_module(_OURS)
  plugins.load(ENTRY_POINTS, "all-reduce algorithms")
