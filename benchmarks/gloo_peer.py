"""A process that is one rank of PyTorch's Gloo; needs PyTorch alone.

Two ways: each tensor by itself, and in flat buckets of 25 MB with the copies
in and out, as DistributedDataParallel does by default. Either sums in place;
the inputs are put back between steps, which isn't timed.
"""

import datetime
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import serving
import torch  # type: ignore[import-not-found,unused-ignore]
import torch.distributed  # type: ignore[import-not-found,unused-ignore]

_BUCKET_BYTES = 25 << 20
_PERIOD = 89
_PART = _PERIOD << 12  # Elements.
_LIMIT = datetime.timedelta(seconds=120)

_BUCKETS, _SINGLY = "Gloo, 25 MB buckets", "Gloo, tensor by tensor"
_Run = Callable[[], None]
_runs: dict[str, tuple[_Run, _Run]] = {}


def join(address: str, workers: int, rank: int) -> dict[str, Any]:
  """Waits for the other ranks."""
  torch.distributed.init_process_group(
      "gloo", init_method=f"tcp://{address}", rank=rank,
      world_size=workers, timeout=_LIMIT)
  return {"version": torch.__version__}


def build(load: str, shapes: list[list[int]],
          singly: bool = True) -> dict[str, Any]:
  """Makes the inputs and checks the ways' results.

  Args:
    load: for others; this Python may not know it.
    shapes: of the tensors.
    singly: whether each tensor goes by itself, too.
  """
  del load
  workers = torch.distributed.get_world_size()
  rank = torch.distributed.get_rank()
  gradients = [torch.empty(shape) for shape in shapes]

  def reset() -> None:
    for i, gradient in enumerate(gradients):
      for part, numbers in _numbered(i, gradient):
        torch.add(numbers, rank, out=part)

  buckets = _buckets(gradients)
  ways: dict[str, _Run] = {_BUCKETS: lambda: _bucketed(buckets)}
  if singly:
    ways[_SINGLY] = lambda: _all_reduce(gradients)
  built = []
  for name, run in ways.items():
    _runs[name] = reset, run
    reset()
    run()
    wrong = sum(
        int((part != numbers * workers + sum(range(workers))).sum())
        for i, gradient in enumerate(gradients)
        for part, numbers in _numbered(i, gradient))
    built.append({"contender": name, "wrong": wrong})
  serving.return_memory()
  return {"contenders": built}


def step(contender: str) -> dict[str, Any]:
  reset, run = _runs[contender]
  reset()
  torch.distributed.barrier()
  started = time.perf_counter()
  run()
  return {"seconds": time.perf_counter() - started}


def _numbered(tensor: int, values: torch.Tensor
              ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
  """Yields parts of `values`, and whole numbers for each: sums are exact.

  Each tensor's differ. In parts, since the memory for whole tensors of them
  would be all ranks' at once.
  """
  numbers = torch.arange(min(_PART, values.numel())) + tensor
  numbers = (numbers % _PERIOD + 1).to(torch.float32)
  for part in values.view(-1).split(_PART):
    yield part, numbers[:part.numel()]


def _buckets(gradients: list[torch.Tensor]
             ) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
  """Groups tensors from the last, as backpropagation makes them."""
  groups: list[list[torch.Tensor]] = [[]]
  for gradient in reversed(gradients):
    size = sum(g.nbytes for g in groups[-1])
    if groups[-1] and size + gradient.nbytes > _BUCKET_BYTES:
      groups.append([])
    groups[-1].append(gradient)
  return [(torch.empty(sum(g.numel() for g in group)), group)
          for group in groups]


def _bucketed(buckets: list[tuple[torch.Tensor, list[torch.Tensor]]]) -> None:
  works = []
  for flat, group in buckets:
    torch.cat([gradient.view(-1) for gradient in group], out=flat)
    works.append(torch.distributed.all_reduce(flat, async_op=True))
  for work, (flat, group) in zip(works, buckets, strict=True):
    work.wait()
    parts = flat.split([gradient.numel() for gradient in group])
    for gradient, part in zip(group, parts, strict=True):
      gradient.view(-1).copy_(part)


def _all_reduce(tensors: list[torch.Tensor]) -> None:
  works = [torch.distributed.all_reduce(tensor, async_op=True)
           for tensor in tensors]
  for work in works:
    work.wait()


if __name__ == "__main__":
  serving.serve({"join": join, "build": build, "step": step})
