"""What SpmdStrategy is given, checked before anything is started."""

import math
import os
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.cluster import addresses

# `tf_cdops launch --devices` says so how many logical CPUs a program has.
DEVICES_VARIABLE = "TF_CDOPS_DEVICES"


def check_options(options: Any) -> Any:
  default = tf.distribute.experimental.CommunicationOptions()
  # Its objects are of a class that has no public name.
  if options is not None and not isinstance(options, type(default)):
    raise errors.InputError(
        f"`communication_options` ({options!r}) must be a "
        "tf.distribute.experimental.CommunicationOptions.")
  return options or default


def check_timeout(timeout: Any) -> None:
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
