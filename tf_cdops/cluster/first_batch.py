"""A first batch that replicas can't divide evenly, which Keras 3 can't take.

`fit` and `evaluate` ask the strategy for the mean, over replicas, of the first
batch, examples and all, before anything is traced: only to read its shape, and
to build the model by that. Where replicas have different shares, as with 16
examples on 3 replicas, or 3 on 4, there is no such mean: TensorFlow raises an
InvalidArgumentError of its op AddN. Any replica's share tells as much.
"""

import sys
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors

_ASKS = "_maybe_symbolic_build"


def accept_uneven_batches(strategy: Any) -> Any:
  """Lets `fit` begin with a batch that the replicas can't divide evenly.

      strategy = tf_cdops.keras.accept_uneven_batches(
          tf.distribute.MirroredStrategy())

  `SpmdStrategy` and `multi_worker_strategy` need no such call. Each replica's
  mean then has the same weight, however many examples it has, as Keras does it
  with a last batch.

  Keras asks the strategy for the mean of the replicas' shares of that batch,
  of which it needs the shape alone; here it gets the first replica's share.
  Nothing else that asks `strategy.reduce` gets another answer; nor does a
  Keras that doesn't ask any more.

  Args:
    strategy: a tf.distribute.Strategy; its `reduce` is replaced.

  Returns:
    The same strategy.

  Raises:
    ValueError: for anything else.
  """
  if not isinstance(strategy, tf.distribute.Strategy):
    raise errors.InputError(
        f"`strategy` ({strategy!r}) must be a tf.distribute.Strategy; give "
        "that in whose scope the model is made.")
  reduce = strategy.reduce

  def reduce_or_tell_shape(reduce_op: Any, value: Any, axis: Any = None) -> Any:
    if is_asked_for(sys._getframe(1)):
      return share_of_first(strategy, value)
    return reduce(reduce_op, value, axis)

  strategy.reduce = reduce_or_tell_shape
  return strategy


def is_asked_for(caller: Any) -> bool:
  """Whether Keras asks, in that frame, for a first batch's shape."""
  return caller is not None and caller.f_code.co_name == _ASKS


def share_of_first(strategy: Any, batch: Any) -> Any:
  """Returns what the first of this program's replicas has of a batch."""
  return tf.nest.map_structure(
      lambda one: strategy.experimental_local_results(one)[0], batch)
