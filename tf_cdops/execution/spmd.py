"""Emits one program's side of an all-reduce over several programs."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.execution import executor
from tf_cdops.execution import finite_sums
from tf_cdops.execution import sparse
from tf_cdops.fabric import peers as peers_lib
from tf_cdops.fabric import tensorflow as tensorflow_fabric
from tf_cdops.planning import planner
from tf_cdops.planning import spmd_rules

PlacedTensor = tensorflow_fabric.PlacedTensor
# Messages travel as these: collective ops don't carry bytes.
_WORD = tf.int32
# A row of so many numbers, or messages of them, TensorFlow cuts off a vector or
# a matrix without a copy: in one byte each they fill what it aligns to.
_ALIGNED = 64


def all_reduce(plan: planner.Plan, batch: Sequence[Sequence[tf.Tensor]],
               peers: peers_lib.Peers, reduce_op: Any,
               encode: tensorflow_fabric.Encode | None = None,
               note: Callable[[str], None] | None = None
               ) -> list[list[tf.Tensor]]:
  """Sums or averages a batch over all programs.

  Args:
    plan: for the devices of all programs.
    batch: for each value of the plan, one tensor per device of this program.
    peers: the other programs.
    reduce_op: tf.distribute.ReduceOp.SUM or MEAN.
    encode: makes a wire's messages; the codec does if None.
    note: is told what the names of its ops begin with.

  Returns:
    For each value, its result, one tensor per device.
  """
  return executor.all_reduce(
      plan, batch, topology_lib.Topology.from_devices(peers.places), reduce_op,
      encode=encode,
      summed_by=functools.partial(_summed_by, plan, peers),
      num_replicas=peers.num_replicas, note=note)


def _summed_by(plan: planner.Plan, peers: peers_lib.Peers,
               bucket: planner.Bucket) -> registry.AllReduce:
  """Returns what sums a bucket's values on this program's devices."""
  if bucket.algorithm == spmd_rules.RING:  # Every device for itself.
    return lambda fabric, values, group: [
        _ringed(peers.all_reduce_everywhere, bucket.shards, fabric, value)
        for value in values]
  intra, _, inter = bucket.algorithm.partition("/")
  if peers.num_workers == 1:
    across = lambda fabric, part, _: part
  elif inter == spmd_rules.RING:
    across = lambda fabric, part, _: _ringed(peers.all_reduce, bucket.shards,
                                             fabric, part)
  else:
    codec = plan.wire.codec if bucket.wired and plan.wire else None
    across = lambda fabric, part, _: _exchanged(
        peers, bucket.shards // peers.num_workers, codec, fabric, part)
  return registry.on_one_worker(registry.lookup(intra), across)


def _ringed(ring: Callable[[tf.Tensor, str], tf.Tensor], shards: int,
            fabric: tensorflow_fabric.TensorFlowFabric,
            value: PlacedTensor) -> PlacedTensor:
  """Sums by TensorFlow's ring, in shards."""
  sums = [part if part.length == 0 else PlacedTensor(
      ring(part.tensor, part.place), part.place, part.length)
          for part in fabric.split(value, shards)]
  return sums[0] if len(sums) == 1 else fabric.concat(sums, value.place)


def _exchanged(peers: peers_lib.Peers, times: int, codec: Any,
               fabric: tensorflow_fabric.TensorFlowFabric,
               value: PlacedTensor) -> PlacedTensor:
  """Sums by direct exchange: each program sums one part of the vector.

  Each term is encoded once, by whoever has it, and the sum once, by who makes
  it; all programs, that one too, go on with what they decode.
  """
  if value.length is None:  # A message's length must be known.
    return _ringed(peers.all_reduce, 1, fabric, value)
  if value.length == 0:
    return value
  place, count = value.place, peers.num_workers
  vector = fabric.emitter.flat(value.tensor, place)
  # Rows have one length, or else programs' messages would not be alike.
  each = _ALIGNED * -(-value.length // (times * count * _ALIGNED))
  sums = []
  with tf.device(place):
    for start in range(0, value.length, count * each):
      rows = [PlacedTensor(row, place, each)
              for row in _rows(vector[start:], count, each)]
      sums += _exchange_rows(peers, codec, fabric, rows)
    whole = tf.concat(sums, 0)[:value.length]
  return PlacedTensor(whole, place, value.length)


def _rows(vector: tf.Tensor, count: int, each: int) -> list[tf.Tensor]:
  """Cuts rows off a vector, the last with zeros; only those are copied."""
  rows = []
  for start in range(0, count * each, each):
    row = vector[start:start + each]
    missing = each - row.shape[0]
    rows.append(tf.pad(row, [[0, missing]]) if missing else row)
  return rows


def _exchange_rows(peers: peers_lib.Peers, codec: Any,
                   fabric: tensorflow_fabric.TensorFlowFabric,
                   rows: Sequence[PlacedTensor]) -> list[tf.Tensor]:
  """Returns the sums of all programs' rows, of which each program makes one."""
  place, count = rows[0].place, len(rows)
  messages = [_message(fabric, codec, row) for row in rows]
  words = peers.all_to_all(tf.stack([_to_words(m) for m in messages]), place)
  total = dataclasses.replace(rows[0], tensor=tf.math.add_n(
      [_read(fabric, codec, word, messages[0], rows[0])
       for word in tf.unstack(words, count)]))
  message = _message(fabric, codec, total)
  words = peers.all_gather(_to_words(message), place)
  return [_read(fabric, codec, word, message, total)
          for word in tf.unstack(words, count)]


def _message(fabric: tensorflow_fabric.TensorFlowFabric, codec: Any,
             value: PlacedTensor) -> tf.Tensor:
  """Returns a vector's message; its length is known, as it must be."""
  if codec is None:
    return value.tensor
  message = fabric.encode(value, codec).tensor
  num_bytes = codec.num_bytes(value.length, value.tensor.dtype.size)
  return tf.ensure_shape(message, [num_bytes // message.dtype.size])


def _read(fabric: tensorflow_fabric.TensorFlowFabric, codec: Any,
          words: tf.Tensor, message: tf.Tensor,
          like: PlacedTensor) -> tf.Tensor:
  """Returns the vector of a message that came as words.

  Args:
    fabric: decodes.
    codec: what it was encoded with; None for not at all.
    words: what came.
    message: one of the same length, as it was encoded.
    like: a vector of the same length.
  """
  arrived = dataclasses.replace(like, tensor=_from_words(words, message))
  if codec is None:
    return arrived.tensor
  return fabric.decode(arrived, codec, like).tensor


def _to_words(message: tf.Tensor) -> tf.Tensor:
  """Returns a message's bytes as words, with zeros at its end if need be."""
  size = message.dtype.size
  if size == _WORD.size:
    return tf.bitcast(message, _WORD)
  if size > _WORD.size:
    return tf.reshape(tf.bitcast(message, _WORD), [-1])
  each = _WORD.size // size
  length = message.shape[0]
  if length % each:
    message = tf.pad(message, [[0, -length % each]])
  return tf.bitcast(tf.reshape(message, [-1, each]), _WORD)


def _from_words(words: tf.Tensor, message: tf.Tensor) -> tf.Tensor:
  """Returns the message that `_to_words` made words of; it was like this."""
  size = message.dtype.size
  if size == _WORD.size:
    return tf.bitcast(words, message.dtype)
  if size > _WORD.size:
    return tf.bitcast(tf.reshape(words, [-1, size // _WORD.size]),
                      message.dtype)
  whole = tf.reshape(tf.bitcast(words, message.dtype), [-1])
  length = message.shape[0]
  return whole if whole.shape[0] == length else whole[:length]


def gather_slices(values: Sequence[Any], peers: peers_lib.Peers,
                  reduce_op: Any) -> list[tf.IndexedSlices]:
  """Sums IndexedSlices by sending all of them to each program."""
  home = peers.places[0]
  with tf.device(home):
    mine = sparse.add_slices(values)
    total = tf.IndexedSlices(peers.all_gather_rows(mine.values, home),
                             peers.all_gather_rows(mine.indices, home),
                             mine.dense_shape)
    if reduce_op == tf.distribute.ReduceOp.MEAN:
      total = sparse.divide(total, peers.num_replicas)
  return executor.copy_to(peers.places, total)


def guarding(peers: peers_lib.Peers) -> dict[str, Any]:
  """Returns how a `nonfinite.Guard` asks other programs, if there are any."""
  home = peers.places[0]
  if peers.num_workers == 1:
    return {}

  return {
      "gather": lambda tensor: peers.all_gather(tensor, home),
      "total": finite_sums.Total(
          lambda vectors: peers.all_reduce(tf.math.add_n(vectors), home),
          lambda vectors: peers.all_gather_rows(tf.concat(vectors, 0), home))}


def gather(values: Sequence[tf.Tensor], axis: Any,
           peers: peers_lib.Peers) -> list[tf.Tensor]:
  """Joins all replicas' tensors along `axis`, in the order of replicas."""
  home = peers.places[0]
  with tf.device(home):
    mine = tf.concat([tf.convert_to_tensor(value) for value in values], axis)
    rank = tf.rank(mine)
    at = tf.math.floormod(tf.cast(axis, tf.int32), rank)
    others = tf.concat([tf.range(at), tf.range(at + 1, rank)], 0)
    joined = peers.all_gather_rows(
        tf.transpose(mine, tf.concat([[at], others], 0)), home)
    back = tf.concat([tf.range(1, at + 1), [0], tf.range(at + 1, rank)], 0)
    joined = tf.transpose(joined, back)
    joined.set_shape(_without_length(mine.shape, axis))
  return executor.copy_to(peers.places, joined)


def _without_length(shape: tf.TensorShape, axis: Any) -> tf.TensorShape:
  """Returns what is known of a joined tensor's shape."""
  at = tf.get_static_value(axis) if tf.is_tensor(axis) else axis
  if at is None or shape.rank is None:
    return tf.TensorShape(None)
  dims = shape.as_list()
  dims[int(at)] = None
  return tf.TensorShape(dims)
