"""Several machines: TensorFlow's own servers, and a strategy over them.

The names load their modules when they are first used: commands that enter a
network of their own must do so before TensorFlow is loaded.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_cdops.cluster.backup import BackupAndRestore
  from tf_cdops.cluster.local import LocalCluster
  from tf_cdops.cluster.spmd import SpmdStrategy
  from tf_cdops.cluster.strategy import multi_worker_strategy
  from tf_cdops.cluster.watchdog import StepWatchdog

__all__ = ["BackupAndRestore", "LocalCluster", "SpmdStrategy", "StepWatchdog",
           "multi_worker_strategy"]

# Public name -> the module that has it.
_HOMES = {
    "BackupAndRestore": "tf_cdops.cluster.backup",
    "LocalCluster": "tf_cdops.cluster.local",
    "SpmdStrategy": "tf_cdops.cluster.spmd",
    "StepWatchdog": "tf_cdops.cluster.watchdog",
    "multi_worker_strategy": "tf_cdops.cluster.strategy",
}


def __getattr__(name: str) -> object:
  if name not in _HOMES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  value = getattr(importlib.import_module(_HOMES[name]), name)
  globals()[name] = value
  return value
