"""What to write today for what TensorFlow 1 programs wrote.

The classes take the arguments that they took then. Names, keywords and values
that are gone are refused, and the error gives the replacement.
"""

from typing import Any


_SAME_ARGUMENTS = "which takes the same arguments"
# Name -> what to write instead.
_NAMES = {
    "AllReduceCrossTowerOps":
        f"tf_cdops.AllReduceCrossDeviceOps, {_SAME_ARGUMENTS}",
    "CollectiveAllReduce":
        'tf_cdops.MultiWorkerAllReduce(all_reduce_spec="collective")',
    "CollectiveCommunication":
        "tf.distribute.experimental.CommunicationImplementation",
    "CollectiveHints": "tf.distribute.experimental.CommunicationOptions",
    "CrossDeviceOps": "tf.distribute.CrossDeviceOps",
    "CrossTowerOps": "tf.distribute.CrossDeviceOps",
    "HierarchicalCopyAllReduce":
        'tf_cdops.AllReduceCrossDeviceOps("hierarchical_copy", num_packs)',
    "MirroredStrategy":
        "tf.distribute.MirroredStrategy(devices, cross_device_ops=...), or "
        "tf_cdops.multi_worker_strategy for several machines",
    "ReductionToOneDeviceCrossDeviceOps":
        f"tf_cdops.ReductionToOneDevice, {_SAME_ARGUMENTS}",
    "ReductionToOneDeviceCrossTowerOps":
        f"tf_cdops.ReductionToOneDevice, {_SAME_ARGUMENTS}",
    "choose_the_best":
        'tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto")',
    "cross_tower_ops": "tf_cdops, which has the classes",
}
# Keyword of `reduce` or `batch_reduce` -> what it is called now.
KEYWORDS = {
    "aggregation": "reduce_op",
    "experimental_hints": "options",
    "method_string": "reduce_op",
    "per_device_value": "per_replica_value",
}


def missing(module: str, name: str) -> AttributeError:
  """Returns the error for a name that a module hasn't got."""
  text = f"module {module!r} has no attribute {name!r}"
  if name in _NAMES:
    text += f"; write {_NAMES[name]}"
  return AttributeError(text)


def reduce_op_instead_of(given: Any) -> str:
  """Returns what to write for a text or a tf.VariableAggregation, or ""."""
  name = str(getattr(given, "name", given)).upper()
  if name in ("SUM", "MEAN"):
    return f" Write tf.distribute.ReduceOp.{name}."
  if name in ("ONLY_FIRST_REPLICA", "ONLY_FIRST_TOWER"):
    return (" Nothing is reduced then: write "
            "strategy.experimental_local_results(value)[0].")
  return ""


def destinations_instead_of(given: Any) -> str:
  """Returns what to write for None or a list of device strings, or ""."""
  if given is None:
    return " For an all-reduce, pass the value itself."
  if isinstance(given, (list, tuple)) and given and all(
      isinstance(name, str) for name in given):
    return (" For an all-reduce, pass the value itself; for other devices, "
            "values that are on them.")
  return ""
