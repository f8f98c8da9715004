"""All-reduce for tf.distribute.MirroredStrategy.

The public names load TensorFlow when they are first used, not before: so the
command line answers at once and can quieten TensorFlow's start-up messages.
"""

import importlib
from typing import TYPE_CHECKING

from tf_cdops import _requirements
from tf_cdops import _tensorflow_1
from tf_cdops.version import __version__

if TYPE_CHECKING:
  from tf_cdops import flags
  from tf_cdops.algorithms.registry import all_reduce_algorithms
  from tf_cdops.algorithms.registry import register_all_reduce
  from tf_cdops.all_reducing import all_reduce
  from tf_cdops.cluster import LocalCluster
  from tf_cdops.cluster import multi_worker_strategy
  from tf_cdops.cross_device_ops import AllReduceCrossDeviceOps
  from tf_cdops.cross_device_ops import MultiWorkerAllReduce
  from tf_cdops.cross_device_ops import NcclAllReduce
  from tf_cdops.cross_device_ops import ReductionToOneDevice
  from tf_cdops.explaining import explain
  from tf_cdops.planning import parse_all_reduce_spec
  from tf_cdops.spec import AllReduceSpecTuple
  from tf_cdops.topology import Topology

__all__ = [
    "AllReduceCrossDeviceOps",
    "AllReduceSpecTuple",
    "LocalCluster",
    "MultiWorkerAllReduce",
    "NcclAllReduce",
    "ReductionToOneDevice",
    "Topology",
    "__version__",
    "all_reduce",
    "all_reduce_algorithms",
    "explain",
    "flags",
    "multi_worker_strategy",
    "parse_all_reduce_spec",
    "register_all_reduce",
]

# Public name -> the module that has it.
_HOMES = {
    "AllReduceCrossDeviceOps": "tf_cdops.cross_device_ops",
    "AllReduceSpecTuple": "tf_cdops.spec",
    "LocalCluster": "tf_cdops.cluster",
    "MultiWorkerAllReduce": "tf_cdops.cross_device_ops",
    "NcclAllReduce": "tf_cdops.cross_device_ops",
    "ReductionToOneDevice": "tf_cdops.cross_device_ops",
    "Topology": "tf_cdops.topology",
    "all_reduce": "tf_cdops.all_reducing",
    "all_reduce_algorithms": "tf_cdops.algorithms.registry",
    "explain": "tf_cdops.explaining",
    "multi_worker_strategy": "tf_cdops.cluster",
    "parse_all_reduce_spec": "tf_cdops.planning",
    "register_all_reduce": "tf_cdops.algorithms.registry",
}

_requirements.check_tensorflow()


def __getattr__(name: str) -> object:
  if name in ("cluster", "flags"):
    return importlib.import_module(f"tf_cdops.{name}")
  if name not in _HOMES:
    raise _tensorflow_1.missing(__name__, name)
  value = getattr(importlib.import_module(_HOMES[name]), name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
