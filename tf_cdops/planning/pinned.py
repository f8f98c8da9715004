"""Plans that are kept in a file, so that a run can be repeated exactly.

    {"workers": [2, 2],
     "tensors": [["float32", 4096], ["float32", null]],
     "buckets": [
         {"tensors": [1], "algorithm": "ps", "shards": 1, "rotation": 0},
         {"tensors": [0], "algorithm": "xring", "shards": 2, "rotation": 1}]}

"workers" has the number of each worker's devices, "tensors" each one's type
and bytes, null where the size isn't known.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.planning import buckets as buckets_lib

_KEYS = ("workers", "tensors", "buckets")
_BUCKET_KEYS = ("tensors", "algorithm", "shards", "rotation")
_REMEDY = "correct it, or save the plan again"


@dataclasses.dataclass(frozen=True)
class Batch:
  """What a plan is for.

  Attributes:
    workers: how many devices each worker has.
    tensors: each one's type, and its bytes if they are known.
  """

  workers: tuple[int, ...]
  tensors: tuple[tuple[str, int | None], ...]

  @classmethod
  def of(cls, sizes: Iterable[buckets_lib.TensorSize],
         topology: topology_lib.Topology) -> "Batch":
    return cls(tuple(map(len, topology.workers)),
               tuple((size.dtype, size.num_bytes) for size in sizes))

  @property
  def num_bytes(self) -> int:
    """The bytes of all tensors whose size is known."""
    return sum(num_bytes or 0 for _, num_bytes in self.tensors)


@dataclasses.dataclass(frozen=True)
class PinnedPlan:
  """The buckets of a batch, as they were when the plan was saved."""

  batch: Batch
  buckets: tuple[buckets_lib.Bucket, ...]
  wire: str | None = None

  def to_dict(self) -> dict[str, Any]:
    """Returns what `from_dict` takes."""
    return {
        "workers": list(self.batch.workers),
        "tensors": [list(tensor) for tensor in self.batch.tensors],
        "buckets": [{"tensors": list(bucket.tensors),
                     "algorithm": bucket.algorithm, "shards": bucket.shards,
                     "rotation": bucket.rotation}
                    | ({"wired": True} if bucket.wired else {})
                    for bucket in self.buckets],
    } | ({"wire": self.wire} if self.wire else {})


def from_dict(content: Any, where: str) -> PinnedPlan:
  """Returns a plan that a file has, checked.

  Args:
    content: as `PinnedPlan.to_dict` returns it.
    where: begins an error: which plan of which file it is.
  """
  if not isinstance(content, dict) or not all(
      isinstance(content.get(key), list) and content[key] for key in _KEYS):
    _refuse(f"{where} must be an object with the lists {', '.join(_KEYS)}, "
            "none of them empty")
  for number in content["workers"]:
    if not errors.is_whole_number(number, 1):
      _refuse(f"{where}: its 'workers' ({number!r}) must be whole numbers of "
              "at least 1, the devices of each")
  tensors = []
  for i, tensor in enumerate(content["tensors"]):
    if not isinstance(tensor, list) or len(tensor) != 2 or not isinstance(
        tensor[0], str) or not (tensor[1] is None
                                or errors.is_whole_number(tensor[1], 0)):
      _refuse(f"{where}: its tensor {i} ({tensor!r}) must be a list of a dtype "
              "and its bytes, null if they aren't known")
    tensors.append((tensor[0], tensor[1]))
  batch = Batch(tuple(content["workers"]), tuple(tensors))
  buckets = tuple(_bucket(bucket, batch, f"{where}: its bucket {i}")
                  for i, bucket in enumerate(content["buckets"]))
  _check_each_once(buckets, len(tensors), where)
  wire = content.get("wire")
  if any(bucket.wired for bucket in buckets) and not isinstance(wire, str):
    _refuse(f"{where}: its 'wire' ({wire!r}) must be a text: a bucket is wired")
  return PinnedPlan(batch, buckets, wire)


def difference(batch: Batch, plans: Sequence[PinnedPlan]) -> str:
  """Says how a batch differs from that of the plan that is the nearest."""
  nearest = min((plan.batch for plan in plans), key=lambda other: (
      other.workers != batch.workers,
      abs(len(other.tensors) - len(batch.tensors)),
      abs(other.num_bytes - batch.num_bytes)))
  found = []
  if nearest.workers != batch.workers:
    found.append(f"is of {_describe_workers(batch)} and not of "
                 f"{_describe_workers(nearest)}")
  if (len(nearest.tensors), nearest.num_bytes) != (
      len(batch.tensors), batch.num_bytes):
    found.append(f"has {len(batch.tensors):,} tensors of {batch.num_bytes:,} "
                 f"bytes and not {len(nearest.tensors):,} of "
                 f"{nearest.num_bytes:,}")
  else:
    for i, (here, there) in enumerate(zip(batch.tensors, nearest.tensors,
                                          strict=True)):
      if here != there:
        found.append(f"has {_describe_tensor(here)} as tensor {i} and not "
                     f"{_describe_tensor(there)}")
        break
  return ", and ".join(found)


def _bucket(content: Any, batch: Batch, where: str) -> buckets_lib.Bucket:
  if not isinstance(content, dict) or any(
      key not in content for key in _BUCKET_KEYS):
    _refuse(f"{where} must be an object with {', '.join(_BUCKET_KEYS)}")
  tensors, algorithm, shards, rotation = (
      content[key] for key in _BUCKET_KEYS)
  if not isinstance(tensors, list) or not tensors or not all(
      errors.is_whole_number(i, 0, len(batch.tensors) - 1) for i in tensors):
    _refuse(f"{where} has the tensors {tensors!r}, which must be positions "
            f"from 0 to {len(batch.tensors) - 1}")
  if not isinstance(algorithm, str):
    _refuse(f"{where}: its 'algorithm' ({algorithm!r}) must be a name")
  for key, least in (("shards", 1), ("rotation", 0)):
    if not errors.is_whole_number(content[key], least):
      _refuse(f"{where}: its {key!r} ({content[key]!r}) must be a whole number "
              f"of at least {least}")
  dtypes = sorted({batch.tensors[i][0] for i in tensors})
  if len(dtypes) > 1:
    _refuse(f"{where} must have tensors of one dtype, and they are of "
            f"{' and '.join(dtypes)}")
  num_bytes = buckets_lib.bytes_together(
      [batch.tensors[i][1] for i in tensors])
  if num_bytes is None and (len(tensors) > 1 or shards > 1):
    _refuse(f"{where} must have one tensor and one shard: it has a tensor "
            "whose size isn't known")
  wired = content.get("wired", False)
  if not isinstance(wired, bool):
    _refuse(f"{where}: its 'wired' ({wired!r}) must be true or false")
  return buckets_lib.Bucket(tuple(tensors), algorithm, shards, rotation,
                            num_bytes, wired)


def _check_each_once(buckets: Sequence[buckets_lib.Bucket], count: int,
                     where: str) -> None:
  seen = [0] * count
  for i in itertools.chain.from_iterable(
      bucket.tensors for bucket in buckets):
    seen[i] += 1
  for i, times in enumerate(seen):
    if times != 1:
      _refuse(f"{where} must have each tensor in one bucket, and tensor {i} is "
              f"in {times}")


def _refuse(rule: str) -> NoReturn:
  raise errors.SpecError(f"{rule}; {_REMEDY}.")


def _describe_workers(batch: Batch) -> str:
  few = sorted(set(batch.workers))
  each = f"{few[0]}" if len(few) == 1 else f"{few[0]} to {few[-1]}"
  workers = len(batch.workers)
  return f"{workers} worker{'s' * (workers > 1)} with {each} devices each"


def _describe_tensor(tensor: tuple[str, int | None]) -> str:
  dtype, num_bytes = tensor
  size = "unknown size" if num_bytes is None else f"{num_bytes:,} bytes"
  return f"{dtype} of {size}"
