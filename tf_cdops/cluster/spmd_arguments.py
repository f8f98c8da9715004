"""What SpmdStrategy is given, checked before anything is started."""

import dataclasses
import math
import os
from typing import Any

import tensorflow as tf

from tf_cdops import registry
from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.cluster import addresses
from tf_cdops.execution import nonfinite
from tf_cdops.execution import sparse as sparse_lib
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

# `tf_cdops launch --devices` says so how many logical CPUs a program has.
DEVICES_VARIABLE = "TF_CDOPS_DEVICES"


@dataclasses.dataclass(frozen=True)
class Settings:
  """What all programs must have given alike; see SpmdStrategy."""

  spec: spec_lib.AllReduceSpec
  wire: registry.Wire | None
  bytes_per_pack: int | None
  sparse: str
  on_nonfinite: str | None
  timeout: float | None

  def told(self) -> dict[str, Any]:
    """Returns them as programs tell each other, by the arguments' names."""
    return {"all_reduce_spec": str(self.spec), "wire": str(self.wire),
            "bytes_per_pack": self.bytes_per_pack, "sparse": self.sparse,
            "on_nonfinite": self.on_nonfinite, "timeout": self.timeout}


def check_settings(all_reduce_spec: Any, wire: Any, bytes_per_pack: Any,
                   sparse: Any, on_nonfinite: Any,
                   timeout: Any) -> Settings:
  """Returns what arguments mean; raises a ValueError for a wrong one."""
  spec = planner.parse_all_reduce_spec(all_reduce_spec)
  checked_wire = spec.wire_for(wire, "across")
  if spec.plans:
    raise errors.SpecError(
        f"`all_reduce_spec` ({all_reduce_spec!r}) must have no plans: those "
        "are for one client, and programs of their own make theirs.")
  if bytes_per_pack is not None:
    errors.check_whole_number("bytes_per_pack", bytes_per_pack, 1)
  _check_timeout(timeout)
  return Settings(spec, checked_wire, bytes_per_pack,
                  sparse_lib.check_mode(sparse),
                  nonfinite.check_mode(on_nonfinite), timeout)


def check_options(options: Any) -> Any:
  default = tf.distribute.experimental.CommunicationOptions()
  # Its objects are of a class that has no public name.
  if options is not None and not isinstance(options, type(default)):
    raise errors.InputError(
        f"`communication_options` ({options!r}) must be a "
        "tf.distribute.experimental.CommunicationOptions.")
  return options or default


def _check_timeout(timeout: Any) -> None:
  if timeout is not None and (
      isinstance(timeout, bool) or not isinstance(timeout, (int, float))
      or not 0 < timeout < math.inf):
    raise errors.InputError(
        f"`timeout` ({timeout!r}) must be a number of seconds above 0, or "
        "None for no limit.")


def resolver_of(given: Any) -> Any:
  """Returns what tells of the cluster: TF_CONFIG, unless another is given."""
  if given is None:
    addresses.from_tf_config()  # It raises what people understand.
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()
  if not isinstance(given, tf.distribute.cluster_resolver.ClusterResolver):
    raise errors.InputError(
        f"`cluster_resolver` ({given!r}) must be a "
        "tf.distribute.cluster_resolver.ClusterResolver, or None for "
        "TF_CONFIG.")
  return given


def cluster_of(resolver: Any) -> addresses.Cluster | None:
  """Returns the workers; None where there is no cluster."""
  if not resolver.cluster_spec().as_dict():
    return None
  cluster = addresses.resolve(resolver)
  if cluster.own is None or cluster.own not in cluster.workers:
    raise errors.InputError(
        f"`cluster_resolver`, or TF_CONFIG, says that this program is task "
        f"{resolver.task_id} of the job {resolver.task_type!r}, which must be "
        "one of the cluster's workers: "
        f"{', '.join(map(str, cluster.workers))}. For a client of servers, use "
        "`multi_worker_strategy`; an evaluator needs no strategy.")
  return cluster


def check_nothing_has_begun(cluster: addresses.Cluster | None) -> None:
  """Raises where TensorFlow can't become part of a cluster any more."""
  if not tf.executing_eagerly():
    raise errors.ClusterError(
        "SpmdStrategy must be made in eager mode, outside of tf.Graph and "
        "tf.function; for TensorFlow 1's graphs, use "
        "`multi_worker_strategy`.")
  if cluster is None or not tf_compat.tensorflow_has_started():
    return
  if tf_compat.is_in_cluster():
    raise errors.ClusterError(
        "SpmdStrategy must be made once in a program, and this one has "
        "connected to a cluster before; use the strategy that there is.")
  raise errors.ClusterError(
      "SpmdStrategy must be made before TensorFlow is used, and this program "
      "has made tensors or listed logical devices; make it earlier, after the "
      "imports.")


def split_cpu() -> None:
  """Makes as many logical CPUs as the launcher says, if it does."""
  text = os.environ.get(DEVICES_VARIABLE)
  if text is None:
    return
  if not text.isdecimal() or int(text) < 1:
    raise errors.InputError(
        f"`{DEVICES_VARIABLE}` ({text!r}) must be a whole number of at least "
        "1.")
  if tf_compat.tensorflow_has_started():  # In a program of one worker.
    count = len(tf.config.list_logical_devices("CPU"))
    if count == 1 < int(text):
      raise errors.ClusterError(
          f"`{DEVICES_VARIABLE}` ({text}) must be known before TensorFlow is "
          "used, and this program has one CPU already; make SpmdStrategy "
          "earlier, after the imports.")
    return
  cpu = tf.config.list_physical_devices("CPU")[0]
  if tf.config.get_logical_device_configuration(cpu) is None and int(text) > 1:
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * int(text))
