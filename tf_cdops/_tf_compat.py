"""The only file that uses TensorFlow's private symbols.

Each one is here because no public name does its job. Checked with TensorFlow
2.16 and 2.21.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import device_util as _device_util
from tensorflow.python.distribute import values as _values
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import ops as _ops

# What MirroredStrategy hands over and expects back. The public
# tf.distribute.DistributedValues is their base but can't be instantiated.
PerReplica = _values.PerReplica
Mirrored = _values.Mirrored


def mirrored(values: Sequence[Any]) -> Any:
  """Returns what tf.distribute uses for a result: Mirrored, or the one value.

  tf.distribute never wraps a single result; callers rely on that.
  """
  return values[0] if len(values) == 1 else Mirrored(tuple(values))


def mirrored_strategy_over(
    devices: Sequence[str], cross_device_ops: Any,
    input_workers: Sequence[Sequence[str]] | None) -> Any:
  """Returns a MirroredStrategy over the devices of several workers.

  Its constructor refuses these while executing eagerly, and only there: a
  strategy made inside a graph works in eager code too. The attributes are
  those that the eager constructor would set.

  Args:
    devices: full names, in replica order.
    cross_device_ops: what it shall reduce with.
    input_workers: each worker's devices, if each shall have its own input
      pipeline; None for one pipeline on the first worker's host.
  """
  with tf.Graph().as_default():
    strategy = tf.distribute.MirroredStrategy(
        list(devices), cross_device_ops=cross_device_ops)
  extended = strategy.extended
  extended.experimental_enable_get_next_as_optional = True
  if input_workers is not None:
    extended._input_workers_devices = tuple(
        (_device_util.get_host_for_device(names[0]), tuple(names))
        for names in input_workers)
  return strategy


def full_device_name(name: str) -> str:
  """Returns the full name of a device, as tf.distribute understands it.

  Parts left out are those of the tf.device in force, which no public call
  tells.
  """
  return _device_util.resolve(name)


def copied_now(tensor: Any, device: str) -> Any:
  """Returns an eager tensor on another device; None if it can't be made now.

  A tape records it. The public tf.identity takes ten times as long, and in
  eager mode a batch has hundreds of copies.
  """
  if tf.executing_eagerly() and isinstance(tensor, _ops.EagerTensor):
    return tensor._copy(device_name=device)
  return None


def tensorflow_has_started() -> bool:
  """Whether TensorFlow's devices are fixed already.

  Listing the logical devices fixes them, after which a program can't
  configure any: constructors must not do that. No public call tells.
  """
  current = _context.context_safe()
  return current is not None and current._initialized


def has_kernel(op: str, device_type: str) -> bool:
  """Whether this build has a kernel of `op` for a kind of device.

  Builds differ by platform and vendor; only the registered kernels tell.
  """
  return any(kernel.device_type == device_type for kernel
             in _kernels.get_registered_kernels_for_op(op).kernel)
