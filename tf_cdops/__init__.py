"""All-reduce for tf.distribute.MirroredStrategy.

The public names load TensorFlow when they are first used, not before: so the
command line answers at once and can quieten TensorFlow's start-up messages.
"""

import importlib
from typing import TYPE_CHECKING

from tf_cdops.base import errors
from tf_cdops.base import requirements as _requirements
from tf_cdops.base import tensorflow_1 as _tensorflow_1
from tf_cdops.base.version import __version__

if TYPE_CHECKING:
  from tf_cdops import keras
  from tf_cdops.base.topology import Topology
  from tf_cdops.cli import flags
  from tf_cdops.cluster import LocalCluster
  from tf_cdops.cluster import SpmdStrategy
  from tf_cdops.cluster import multi_worker_strategy
  from tf_cdops.cost import Network
  from tf_cdops.cross_device_ops import AllReduceCrossDeviceOps
  from tf_cdops.cross_device_ops import MultiWorkerAllReduce
  from tf_cdops.cross_device_ops import NcclAllReduce
  from tf_cdops.cross_device_ops import ReductionToOneDevice
  from tf_cdops.execution.all_reducing import all_reduce
  from tf_cdops.explaining import explain
  from tf_cdops.keras import ReplicaCheck
  from tf_cdops.keras import Timeline
  from tf_cdops.planning.planner import parse_all_reduce_spec
  from tf_cdops.planning.spec import AllReduceSpecTuple
  from tf_cdops.registry import all_reduce_algorithms
  from tf_cdops.registry import register_all_reduce
  from tf_cdops.registry import register_wire_codec

__all__ = [
    "AllReduceCrossDeviceOps",
    "AllReduceSpecTuple",
    "LocalCluster",
    "MultiWorkerAllReduce",
    "NcclAllReduce",
    "Network",
    "ReductionToOneDevice",
    "ReplicaCheck",
    "SpmdStrategy",
    "Timeline",
    "Topology",
    "__version__",
    "all_reduce",
    "all_reduce_algorithms",
    "errors",
    "explain",
    "flags",
    "keras",
    "multi_worker_strategy",
    "parse_all_reduce_spec",
    "register_all_reduce",
    "register_wire_codec",
]

_MODULES = {"cluster": "tf_cdops.cluster", "flags": "tf_cdops.cli.flags",
            "keras": "tf_cdops.keras"}
# Public name -> the module that has it.
_HOMES = {
    "AllReduceCrossDeviceOps": "tf_cdops.cross_device_ops",
    "AllReduceSpecTuple": "tf_cdops.planning.spec",
    "LocalCluster": "tf_cdops.cluster",
    "MultiWorkerAllReduce": "tf_cdops.cross_device_ops",
    "NcclAllReduce": "tf_cdops.cross_device_ops",
    "Network": "tf_cdops.cost",
    "ReductionToOneDevice": "tf_cdops.cross_device_ops",
    "ReplicaCheck": "tf_cdops.keras",
    "SpmdStrategy": "tf_cdops.cluster",
    "Timeline": "tf_cdops.keras",
    "Topology": "tf_cdops.base.topology",
    "all_reduce": "tf_cdops.execution.all_reducing",
    "all_reduce_algorithms": "tf_cdops.registry",
    "explain": "tf_cdops.explaining",
    "multi_worker_strategy": "tf_cdops.cluster",
    "parse_all_reduce_spec": "tf_cdops.planning.planner",
    "register_all_reduce": "tf_cdops.registry",
    "register_wire_codec": "tf_cdops.registry",
}

_requirements.check_tensorflow()


def __getattr__(name: str) -> object:
  if name in _MODULES:
    return importlib.import_module(_MODULES[name])
  if name not in _HOMES:
    raise _tensorflow_1.missing(__name__, name)
  value = getattr(importlib.import_module(_HOMES[name]), name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
