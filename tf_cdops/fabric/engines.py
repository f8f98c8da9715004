"""TensorFlow's own all-reduce engines: its NCCL op and its collective ops.

Both block until every device of the group takes part. So in eager mode they
run inside one function, outputs are tied together lest some be pruned, and on
each device an all-reduce waits for the one before it: if two devices started
two of them in different orders, both would wait for ever.
"""

import contextlib
import dataclasses
import functools
import itertools
import random
import threading
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.fabric import incarnations
from tf_cdops.fabric import thread_numbers

# Where a graph keeps the ops that the next engine's all-reduce must wait for.
_LAST_LAUNCH = "tf_cdops/last_native_all_reduce"
# TensorFlow's strategies number their groups from 1; ours start far from it,
# elsewhere in each program: workers remember the groups of those before.
_GROUP_KEYS = itertools.count(random.SystemRandom().randrange(1 << 24, 1 << 30))
_LAUNCHES = itertools.count(1)
_THREAD_NUMBER = "tf_cdops/thread_number"
# Two threads that run one function would mix each other's contributions. A
# graph's collective ops are numbered by thread; NCCL's op takes no number.
_one_at_a_time = threading.Lock()

Emit = Callable[[Sequence[tf.Tensor], tuple[str, ...], "Options"],
                list[tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Options:
  """What tf.distribute.experimental.CommunicationOptions asks of an engine.

  Its `timeout_seconds` isn't among them. TensorFlow starts a thread that sleeps
  so long for each collective op and step, and ends no wait by it: the step goes
  on waiting for the device that is late, and later collectives all fail.

  Attributes:
    implementation: "auto", "ring" or "nccl"; for the collective engine.
  """

  implementation: str = "auto"


def all_reduce(engine: str, tensors: Sequence[tf.Tensor],
               places: Sequence[str], options: Options) -> list[tf.Tensor]:
  """Sums one tensor per device with an engine; returns one per device."""
  if not tf.executing_eagerly():
    return _emit(engine, tensors, tuple(places), options)
  function = _kept().function(engine, tuple(places), options,
                              tensors[0].dtype, tuple(tensors[0].shape))
  with _one_at_a_time:
    outputs = function(*tensors)
  results = []
  for output, place in zip(outputs, places, strict=True):
    # A function's outputs all say that they are on its first device.
    with tf.device(place):
      results.append(tf.identity(output))
  return results


class _Kept:
  """What is made once and serves for one connection to a cluster."""

  def __init__(self) -> None:
    # Bounded: more than the shapes of a model.
    self.function = functools.lru_cache(maxsize=1024)(_function)
    # The same handle each time, or it would order nothing.
    self.launch_handle = functools.cache(_launch_handle)
    # A group is its devices, in their order.
    self.group_key = functools.cache(_group_key)


def _group_key(places: tuple[str, ...]) -> int:
  if tf.compat.v1.executing_eagerly_outside_functions():
    incarnations.check(places, tf_compat.device_incarnations())
  return next(_GROUP_KEYS)


def _kept() -> _Kept:
  return _kept_for(tf_compat.connection_number())


@functools.lru_cache(maxsize=1)  # A new connection lets go of the old one's.
def _kept_for(connection: int) -> _Kept:
  del connection
  return _Kept()


def _function(engine: str, places: tuple[str, ...], options: Options,
              dtype: tf.DType, shape: tuple[int, ...]
              ) -> Callable[..., list[tf.Tensor]]:
  # Concrete, since TensorFlow warns of a function that is traced often.
  return tf.function(
      lambda *tensors: _emit(engine, tensors, places, options),
      autograph=False).get_concrete_function(
          *[tf.TensorSpec(shape, dtype)] * len(places))


def _emit(engine: str, tensors: Sequence[tf.Tensor], places: tuple[str, ...],
          options: Options) -> list[tf.Tensor]:
  dtype = tensors[0].dtype
  carried = [_on(place, to_carrier, engine, tensor)
             for tensor, place in zip(tensors, places, strict=True)]
  graph = tf.compat.v1.get_default_graph()
  # For each place, the ops of the last all-reduce there: no place waits for
  # an all-reduce elsewhere, so that workers go side by side.
  last = [graph.get_collection_ref(_LAST_LAUNCH + place) for place in places]
  before = list(dict.fromkeys(op for ops in last for op in ops))
  with tf.control_dependencies(before):
    fences = _fences(engine, places)
  with tf.control_dependencies(fences or before):
    sums = _ENGINES[engine](carried, places, options)
  launched = [total.op for total in sums]
  with tf.control_dependencies(launched):
    fences = _fences(engine, places)
  for ops in last:
    ops[:] = [*launched, *fences]
  tied = []
  for total, place in zip(sums, places, strict=True):
    with tf.device(place), tf.control_dependencies(launched):
      tied.append(tf.identity(total))
  return [_on(place, from_carrier, total, dtype)
          for total, place in zip(tied, places, strict=True)]


def _fences(engine: str, places: Sequence[str]) -> list[tf.Operation]:
  """Returns ops that mark a launch on each place for the functions around.

  A function that is called, or a branch, has launches that this graph doesn't
  see. But all of them use the place's handle, and TensorFlow keeps what uses
  one handle in the order of the program. The collective ops have their tokens.
  """
  if engine != "nccl" or (
      not tf.compat.v1.executing_eagerly_outside_functions()):
    return []
  with tf.device(None):  # They go where the handle is.
    handles = [_kept().launch_handle(place) for place in places]
    return [tf.raw_ops.VarIsInitializedOp(resource=handle).op
            for handle in handles]


def _launch_handle(place: str) -> tf.Tensor:
  name = f"tf_cdops/launch{place}".replace("/", "_").replace(":", "_")
  with tf.init_scope(), tf.device("CPU:0"):
    return tf.raw_ops.VarHandleOp(shared_name=name, dtype=tf.float32, shape=[])


def _nccl(tensors: Sequence[tf.Tensor], places: tuple[str, ...],
          options: Options) -> list[tf.Tensor]:
  del options  # The op has none: it waits until the step is cancelled.
  graph = tf.compat.v1.get_default_graph()
  shared_name = f"tf_cdops_{next(_LAUNCHES)}_{graph.unique_name('nccl')}"
  sums = []
  for tensor, place in zip(tensors, places, strict=True):
    with tf.device(place):
      sums.append(tf.raw_ops.NcclAllReduce(
          input=tensor, reduction="sum", num_devices=len(places),
          shared_name=shared_name))
  return sums


def _collective(tensors: Sequence[tf.Tensor], places: tuple[str, ...],
                options: Options) -> list[tf.Tensor]:
  hint = options.implementation
  if hint == "nccl" and not all("GPU" in place.upper() for place in places):
    hint = "auto"  # MirroredStrategy may ask for NCCL on CPUs; TF would fail.
  group_key = _kept().group_key(places)
  first_key = next(_LAUNCHES) * thread_numbers.LIMIT
  thread = _thread_number()
  sums = []
  for tensor, place in zip(tensors, places, strict=True):
    token = _token(place)
    with tf.device(place):
      sums.append(tf.raw_ops.CollectiveReduceV2(
          input=tensor, group_size=len(places), group_key=group_key,
          instance_key=(first_key if thread is None
                        else tf.raw_ops.AddV2(x=thread, y=first_key)),
          ordering_token=[token], merge_op="Add", final_op="Id",
          communication_hint=hint, timeout_seconds=0))
  return sums


def _thread_number() -> tf.Tensor | None:
  """Returns the number of the thread that runs the graph, known when it does.

  Two runs of one function at once, in two threads, need keys of their own. A
  key for each run would do, but TensorFlow keeps 1.7 KB for each key for ever:
  so each thread uses the same ones again. A session numbers its runs itself.
  """
  if not tf.compat.v1.executing_eagerly_outside_functions():
    return None
  return tf_compat.value_at_call(thread_numbers.current, _THREAD_NUMBER)


_ENGINES: dict[str, Emit] = {"nccl": _nccl, "collective": _collective}
# What each engine sums by itself; the rest is carried as one of these.
_SUMS = {
    "nccl": (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64),
    "collective": (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32,
                   tf.int64),
}
_REAL = {tf.complex64: tf.float32, tf.complex128: tf.float64}


def to_carrier(engine: str, tensor: tf.Tensor) -> tf.Tensor:
  """Returns the tensor in a dtype that the engine sums."""
  if tensor.dtype in _SUMS[engine]:
    return tensor
  if tensor.dtype in _REAL:  # Pairs of reals: the sum is element by element.
    return tf.bitcast(tensor, _REAL[tensor.dtype])
  if tensor.dtype == tf.bfloat16:
    return tf.cast(tensor, tf.float32)
  names = dict.fromkeys(dtype.name for dtype
                        in (*_SUMS[engine], tf.bfloat16, *_REAL))
  raise errors.AlgorithmError(
      f"{engine} can't sum {tensor.dtype.name}; it sums {', '.join(names)}: "
      "cast the values, or use another algorithm.")


def from_carrier(total: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  if total.dtype == dtype:
    return total
  return (tf.bitcast(total, dtype) if dtype in _REAL
          else tf.cast(total, dtype))


def _on(place: str, function: Callable[..., tf.Tensor],
        *args: object) -> tf.Tensor:
  with tf.device(place):
    return function(*args)


def _token(place: str) -> tf.Tensor:
  """Returns a device's resource handle, by which its collectives are ordered.

  A tf.Variable won't do: under a strategy it would be mirrored.
  """
  name = f"tf_cdops/ordering_token{place}".replace("/", "_").replace(":", "_")
  lifted = tf.compat.v1.executing_eagerly_outside_functions()
  scope = tf.init_scope() if lifted else contextlib.nullcontext()
  with scope, tf.device(place):
    return tf.raw_ops.VarHandleOp(shared_name=name, dtype=tf.float32, shape=[])
