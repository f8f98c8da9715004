"""How replicas decide together, and then do a thing or leave it.

An optimizer runs in each replica's context, where a tf.cond can't hold an
all-reduce: its branches can't meet those of the other replicas. All must come
together first (`merge_call`) and decide there, once for all of them.
"""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.execution import finite_sums


def check_context() -> None:
  """Raises unless this is a replica's context, or there is no strategy."""
  if tf.distribute.in_cross_replica_context():
    raise errors.InputError(
        "`apply` must be called on each replica, and was called for all of "
        "them at once; call it in a function that `strategy.run` is given.")


def check_scope(name: str, *counters: Any) -> None:
  """Raises if a strategy is in force in whose scope an optimizer wasn't made.

  Replicas would share its counters, and each count every step.

  Args:
    name: the optimizer's.
    *counters: variables that were made with it.
  """
  extended = tf.distribute.get_strategy().extended
  if tf.distribute.has_strategy() and not all(
      extended.variable_created_in_scope(counter.value)
      for counter in counters):
    raise errors.InputError(
        f"`optimizer` ({name}) must be made in the scope of the strategy that "
        "it is used with; make it, and those that it wraps, in a block of "
        "`with strategy.scope():`.")


def all_finite(gradients: Iterable[Any]) -> tf.Tensor:
  """Whether this replica's gradients have neither an infinity nor a NaN."""
  parts = [tf.convert_to_tensor(finite_sums.dense_part(one))
           for one in gradients if one is not None]
  finite = [tf.reduce_all(finite_sums.is_finite(part)) for part in parts
            if finite_sums.can_be_infinite(part.dtype)]
  return tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)


def on_all(condition: tf.Tensor) -> tf.Tensor:
  """Whether it holds on every replica of every worker: alike on all of them.

  An integer travels, which no wire rounds.
  """
  failed = tf.distribute.get_replica_context().all_reduce(
      tf.distribute.ReduceOp.SUM, tf.cast(tf.logical_not(condition), tf.int32))
  return tf.equal(failed, 0)


def decide(condition: tf.Tensor, then: Callable[..., None],
           otherwise: Callable[[], None] = lambda: None,
           args: tuple[Any, ...] = ()) -> None:
  """Calls one of two functions, once for all replicas.

  Args:
    condition: what decides; alike on all replicas.
    then: is called if it holds, with `args`.
    otherwise: is called if it doesn't.
    args: each replica's, for `on_each`.
  """
  if not tf.distribute.has_strategy():
    tf.cond(condition, lambda: then(*args), otherwise)
    return

  def together(strategy: Any, condition: Any, *args: Any) -> None:
    tf.cond(strategy.experimental_local_results(condition)[0],
            lambda: then(*args), otherwise)

  tf.distribute.get_replica_context().merge_call(
      together, args=(condition, *args))


def on_each(call: Callable[..., Any], *args: Any) -> None:
  """Calls a function on each replica; for a `then` of `decide`."""
  if tf.distribute.has_strategy():
    tf.distribute.get_strategy().extended.call_for_each_replica(call, args=args)
  else:
    call(*args)
