"""Where the tests of tf_cdops.keras train their models."""

from typing import Any

from tests import virtual_devices
import tensorflow as tf

import tf_cdops

# Where to train: None for no strategy; else (number of replicas, whose ops).
PLACES = (None, (2, "ours"), (3, "TensorFlow's"), (3, "ours"), (4, "ours"))


def strategy_for(place: tuple[int, str] | None) -> Any:
  """Returns the strategy of a place, or None."""
  if place is None:
    return None
  replicas, whose = place
  return tf.distribute.MirroredStrategy(
      virtual_devices.names(replicas),
      tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto") if whose == "ours"
      else tf.distribute.ReductionToOneDevice())
