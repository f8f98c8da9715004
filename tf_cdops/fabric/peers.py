"""Collective ops among programs, one per worker: a program's own side of them.

Between programs TensorFlow sends nothing but what collective ops do. All
programs must run the same ones, in the same order on each lane.
"""

import collections
import dataclasses
import functools
import hashlib
import re
from typing import Any

import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.fabric import engines

# Ops of one lane follow each other; those of several are under way at once,
# so that a cable isn't idle while one of them sums. TensorFlow's own strategy
# has one. Four hosts at 200 Mbit/s, 16 MB and 60 times 4 KB, three rounds on a
# busy machine: 1.15 of the least with one lane, 1.08 with two, 1.08 to 1.13
# with more. While processors compute, a lane waits longer for its turn: of a
# step of training with a batch of 64 (see benchmarks/SPMD.md), 838 ms of
# communication weren't hidden with two, and 738 with four (medians of five
# rounds, whose ranges overlap). Each kind of op has its own: of an exchange, as
# many packs are gathered as are sent to be summed.
LANES = 4
# Rings at once for one tensor, at most. Beside lanes it made little difference.
SUBDIVISIONS = 2
# TensorFlow numbers groups from 1, and its collective ops from 100, one by one.
_FIRST_GROUP = 0x7CD00000
_FIRST_KEY, _KEYS = 1 << 29, 1 << 29
# What is only known when it runs is padded to one of these lengths, and each
# has a key of its own: an eighth longer at the most.
_LENGTHS = (*range(1, 8), *((8 + eighth) << power
                         for power in range(28) for eighth in range(8)))
_FIRST_PADDED, _PADDED = 1 << 30, (1 << 30) // len(_LENGTHS)
_ATTRIBUTE = "_tf_cdops_collective_ops"  # Of a graph.
_CARRIED = {tf.bfloat16: tf.float32, tf.bool: tf.int32, tf.int8: tf.int32,
            tf.uint8: tf.int32, tf.int16: tf.int32, tf.uint16: tf.int32,
            tf.uint32: tf.int64, tf.complex64: tf.float32,
            tf.complex128: tf.float64}
_GATHERED = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)


@dataclasses.dataclass(frozen=True)
class Peers:
  """A program's devices, and how many programs there are.

  A device's peers are those of the same number in the other programs.

  Attributes:
    num_workers: the programs, this one included.
    places: this program's devices; each program has as many.
    implementation: "auto", "ring" or "nccl".
  """

  num_workers: int
  places: tuple[str, ...]
  implementation: str = "auto"

  @property
  def num_replicas(self) -> int:
    return self.num_workers * len(self.places)

  def all_reduce(self, tensor: tf.Tensor, place: str) -> tf.Tensor:
    """Returns the sum of the peers' tensors, which have one shape."""
    return self._all_reduce(tensor, place, self.num_workers,
                            self.places.index(place))

  def all_reduce_everywhere(self, tensor: tf.Tensor, place: str) -> tf.Tensor:
    """Returns the sum of those of all devices; each of them must call it."""
    return self._all_reduce(tensor, place, self.num_replicas,
                            len(self.places))

  def _all_reduce(self, tensor: tf.Tensor, place: str, size: int,
                  group: int) -> tf.Tensor:
    with tf.device(place):
      carried = engines.to_carrier("collective", tensor)
      if tensor.shape.is_fully_defined():
        launch = _Launch.of("reduce", carried, place, group)
        total = self._reduce(carried, size, launch, launch.key)
      else:  # A collective op has the same shape each time.
        total = self._all_reduce_padded(carried, place, size, group)
      return engines.from_carrier(total, tensor.dtype)

  def _all_reduce_padded(self, tensor: tf.Tensor, place: str, size: int,
                         group: int) -> tf.Tensor:
    vector = tf.reshape(tensor, [-1])
    launch = _Launch.of("reduce", vector, place, group, padded=True)
    number, padded = _padded(vector, tf.size(vector))
    total = self._reduce(padded, size, launch, launch.padded_key(number))
    return tf.reshape(total[:tf.size(vector)], tf.shape(tensor))

  def _reduce(self, tensor: tf.Tensor, size: int, launch: "_Launch",
              key: Any) -> tf.Tensor:
    return tf.raw_ops.CollectiveReduceV2(
        input=tensor, group_size=size, group_key=launch.group_key,
        instance_key=key, ordering_token=[launch.token], merge_op="Add",
        final_op="Id", communication_hint=self._hint(), timeout_seconds=0,
        max_subdivs_per_device=SUBDIVISIONS)

  def all_to_all(self, rows: tf.Tensor, place: str) -> tf.Tensor:
    """Returns as many rows: of each peer, in order, the one that is for here.

    Args:
      rows: one for each peer, of int32.
      place: where.
    """
    with tf.device(place):
      launch = _Launch.of("all to all", rows, place, self.places.index(place))
      return tf.raw_ops.CollectiveAllToAllV2(
          input=rows, group_size=self.num_workers, group_key=launch.group_key,
          instance_key=launch.key, ordering_token=[launch.token],
          communication_hint=self._hint(), timeout_seconds=0)

  def all_gather(self, tensor: tf.Tensor, place: str) -> tf.Tensor:
    """Returns all peers' tensors, which have one shape, as rows in order."""
    with tf.device(place):
      launch = _Launch.of("gather", tensor, place, self.places.index(place))
      return tf.reshape(self._gather(tensor, launch, launch.key),
                        [self.num_workers, *tensor.shape])

  def all_gather_rows(self, tensor: tf.Tensor, place: str) -> tf.Tensor:
    """Joins all peers' rows, in order; each may have another number of them."""
    if self.num_workers == 1:
      return tensor
    with tf.device(place):
      carried = _to_gather(tensor)
      vector = tf.reshape(carried, [-1])
      lengths = tf.reshape(self.all_gather(tf.reshape(tf.size(vector), [1]),
                                           place), [-1])
      launch = _Launch.of("gather", vector, place, self.places.index(place),
                          padded=True)
      number, padded = _padded(vector, tf.reduce_max(lengths))
      gathered = tf.reshape(
          self._gather(padded, launch, launch.padded_key(number)),
          [self.num_workers, -1])
      joined = tf.boolean_mask(gathered, tf.sequence_mask(
          lengths, tf.shape(gathered)[1]))
      rows = tf.reshape(joined, tf.concat([[-1], tf.shape(carried)[1:]], 0))
      rows = tf.ensure_shape(rows, [None, *carried.shape[1:]])
      return _from_gather(rows, tensor.dtype)

  def _gather(self, tensor: tf.Tensor, launch: "_Launch",
              key: Any) -> tf.Tensor:
    return tf.raw_ops.CollectiveGatherV2(
        input=tensor, group_size=self.num_workers, group_key=launch.group_key,
        instance_key=key, ordering_token=[launch.token],
        communication_hint=self._hint(), timeout_seconds=0)

  def _hint(self) -> str:
    if self.implementation == "nccl" and not all(
        "GPU" in place for place in self.places):
      return "auto"
    return self.implementation


@dataclasses.dataclass(frozen=True)
class _Launch:
  """One collective op in a graph: who takes part, which it is, when it runs.

  All programs must give it the same key. They may trace functions in another
  order, or more often. So its key is a number made of what it does, where, and
  how many such ops the graph has before it; that never runs twice at once,
  since it is always on the same lane. TensorFlow's own strategy takes a new
  key at each call, for each of which every worker keeps 1.7 KB for ever.
  """

  group: int
  digest: int
  token: Any

  @classmethod
  def of(cls, what: str, tensor: tf.Tensor, place: str, group: int,
         padded: bool = False) -> "_Launch":
    graph = tf.compat.v1.get_default_graph()
    counts = getattr(graph, _ATTRIBUTE, None)
    if counts is None:
      counts = collections.Counter[Any]()
      setattr(graph, _ATTRIBUTE, counts)
    lane = counts[place, what] % LANES
    counts[place, what] += 1
    # Of what will be padded, programs may know more or less.
    shape = None if padded else tuple(tensor.shape)
    kind = place, what, tensor.dtype.name, shape, group, lane
    signature = (*kind[1:], counts[kind])
    counts[kind] += 1
    return cls(group, _digest(signature),
               _token(place, f"{what} {lane}", tf_compat.connection_number()))

  @property
  def group_key(self) -> int:
    return _FIRST_GROUP + self.group

  @property
  def key(self) -> int:
    return _FIRST_KEY + _known(self.digest % _KEYS, False, self.digest)

  def padded_key(self, number: tf.Tensor) -> tf.Tensor:
    """Returns the key for the length of that number."""
    base = _known(self.digest % _PADDED, True, self.digest)
    return _FIRST_PADDED + base * len(_LENGTHS) + number


def _digest(signature: Any) -> int:
  return int.from_bytes(hashlib.blake2b(
      repr(signature).encode(), digest_size=8).digest(), "big")


_digests: dict[tuple[int, bool], int] = {}


def _known(key: int, padded: bool, digest: int) -> int:
  """Returns the key, having checked that it stands for nothing else."""
  if _digests.setdefault((key, padded), digest) != digest:
    raise errors.AlgorithmError(
        "two different collective ops came to have one key, as happens once "
        "in some millions of programs; pack the tensors otherwise: "
        "`bytes_per_pack`.")
  return key


@functools.lru_cache(maxsize=256)
def _token(place: str, lane: str, connection: int) -> tf.Tensor:
  """Returns a resource handle, the same each time, by which a lane is ordered.

  A tf.Variable won't do: under a strategy it would be mirrored.
  """
  name = f"tf_cdops/lane{lane}{place}/{connection}"
  with tf.init_scope(), tf.device(place):
    return tf.raw_ops.VarHandleOp(
        shared_name=re.sub("[/: ]", "_", name),
        dtype=tf.float32, shape=[])


def _padded(vector: tf.Tensor,
            length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the vector with a length of `_LENGTHS`, and which that is."""
  lengths = tf.constant([n for n in _LENGTHS if n < 1 << 31], tf.int32)
  number = tf.searchsorted(lengths, [length])[0]
  return number, tf.pad(vector, [[0, lengths[number] - tf.size(vector)]])


def _to_gather(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the tensor in a dtype that collective ops gather."""
  if tensor.dtype in _GATHERED:
    return tensor
  if tensor.dtype not in _CARRIED:
    names = ", ".join(dtype.name for dtype in (*_GATHERED, *_CARRIED))
    raise errors.InputError(
        f"`value` has dtype {tensor.dtype.name}, which can't be gathered from "
        f"other programs; cast it to one of {names}.")
  if tensor.dtype.is_complex:
    return tf.bitcast(tensor, _CARRIED[tensor.dtype])
  return tf.cast(tensor, _CARRIED[tensor.dtype])


def _from_gather(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  if tensor.dtype == dtype:
    return tensor
  return (tf.bitcast(tensor, dtype) if dtype.is_complex
          else tf.cast(tensor, dtype))
