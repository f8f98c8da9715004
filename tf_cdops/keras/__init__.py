"""What Keras 3 needs mended or watched under a strategy.

The names load their modules, and so Keras, when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_cdops.keras.name_gradients import NameGradients
  from tf_cdops.keras.replica_check import ReplicaCheck

__all__ = ["NameGradients", "ReplicaCheck"]

# Public name -> the module that has it.
_HOMES = {
    "NameGradients": "tf_cdops.keras.name_gradients",
    "ReplicaCheck": "tf_cdops.keras.replica_check",
}


def __getattr__(name: str) -> object:
  if name not in _HOMES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  value = getattr(importlib.import_module(_HOMES[name]), name)
  globals()[name] = value
  return value
