"""nccl and collective: TensorFlow's own engines do the all-reduce."""

import functools
from collections.abc import Sequence
from typing import Any

from tf_cdops import registry
from tf_cdops.algorithms import ps
from tf_cdops.fabric import base


@registry.register_all_reduce(
    "nccl", description="NVIDIA's NCCL, through TensorFlow's op.",
    device_types=["GPU"], single_worker=True, kernel="NcclAllReduce",
    whole_devices=True, modelled=True,  # Its own hops take next to no time.
    traffic=functools.partial(registry.engine_traffic, hidden=0))
def nccl(fabric: base.Fabric, values: Sequence[Any],
         group: base.Group) -> list[Any]:
  """All-reduce by NCCL among the GPUs of one worker.

  bfloat16 is summed as float32, and complex numbers as pairs of reals.

  Reference: NVIDIA, "NCCL documentation", "Collective operations".
  """
  return fabric.native_all_reduce("nccl", values, group)


@registry.register_all_reduce(
    "collective", description="TensorFlow's collective ops.",
    traffic=registry.engine_traffic, modelled=True)
def collective(fabric: base.Fabric, values: Sequence[Any],
               group: base.Group) -> list[Any]:
  """All-reduce by TensorFlow's collective executor: ring, or NCCL on GPUs.

  `CommunicationOptions.implementation` chooses the engine. A vector whose
  length isn't known before the graph runs is summed as "ps" does it: a
  collective op must have the same shape each time.

  Reference: tf.distribute.experimental.CommunicationImplementation.
  """
  if values[0].length is None:
    return ps.broadcast(fabric, fabric.add(values, ps.on_replicas(group)),
                        group)
  return fabric.native_all_reduce("collective", values, group)
