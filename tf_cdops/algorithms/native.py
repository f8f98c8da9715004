"""nccl and collective: TensorFlow's own engines do the all-reduce."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_cdops.algorithms import registry
from tf_cdops.algorithms import shuffle
from tf_cdops.fabric import base
from tf_cdops.fabric import traffic as traffic_lib


def traffic(length: int, group: base.Group) -> traffic_lib.Traffic:
  """One opaque step, and a ring's traffic: a model, not a count."""
  order = np.array([rank for ranks in group.workers for rank in ranks])
  lengths = np.array(base.part_lengths(length, len(order)))
  ring = traffic_lib.wave(
      1, order, np.roll(order, -1),
      2 * length - lengths - np.roll(lengths, -1),
      hidden=max(2 * len(order) - 3, 0))
  return traffic_lib.Traffic((ring,), (), order, lengths)


@registry.register_all_reduce(
    "nccl", description="NVIDIA's NCCL, through TensorFlow's op.",
    device_types=["GPU"], single_worker=True, kernel="NcclAllReduce",
    whole_devices=True, traffic=traffic, modelled=True,
    steps_formula="1, out of sight", bytes_formula="2n(p-1)/p, modelled")
def nccl(fabric: base.Fabric, values: Sequence[Any],
         group: base.Group) -> list[Any]:
  """All-reduce by NCCL among the GPUs of one worker.

  For p devices and n elements, modelled as a ring (NCCL itself may choose
  otherwise):
    steps: 1, opaque.
    moved: 2(p-1)n in all.
    needs: GPUs on one worker, none of them virtual, and a TensorFlow build
      with NCCL's kernel.
  bfloat16 is summed as float32, and complex numbers as pairs of reals.

  Reference: NVIDIA, "NCCL documentation", "Collective operations".
  """
  return fabric.native_all_reduce("nccl", values, group)


@registry.register_all_reduce(
    "collective", description="TensorFlow's collective ops.",
    traffic=traffic, modelled=True, steps_formula="1, out of sight",
    bytes_formula="2n(p-1)/p, modelled")
def collective(fabric: base.Fabric, values: Sequence[Any],
               group: base.Group) -> list[Any]:
  """All-reduce by TensorFlow's collective executor: ring, or NCCL on GPUs.

  For p devices and n elements, modelled as a ring:
    steps: 1, opaque.
    moved: 2(p-1)n in all.
    needs: any devices.
  `CommunicationOptions.implementation` chooses the engine. A vector whose
  length isn't known before the graph runs is summed as "ps" does it: a
  collective op must have the same shape each time.

  Reference: tf.distribute.experimental.CommunicationImplementation.
  """
  if values[0].length is None:
    return shuffle.broadcast(
        fabric, fabric.add(values, shuffle.on_replicas(group)), group)
  return fabric.native_all_reduce("collective", values, group)
