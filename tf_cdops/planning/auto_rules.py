"""The rules by which the spec "auto" chooses: a table, first match wins."""

import dataclasses

from tf_cdops.base import topology as topology_lib


@dataclasses.dataclass(frozen=True)
class Rule:
  """Tensors of up to `limit` bytes, where `where` holds, go this way.

  Attributes:
    where: a key of `_WHERE`.
    limit: in bytes; None for no limit.
    algorithm: what sums them.
    pack: whether they are joined into packs first.
    why: the reason, for people.
  """

  where: str
  limit: int | None
  algorithm: str
  pack: bool
  why: str


RULES = (
    Rule("one worker, NCCL", 1 << 20, "nccl", True,
         "NCCL has the GPUs' own links; small tensors share a launch"),
    Rule("one worker, NCCL", None, "nccl", False,
         "NCCL has the GPUs' own links; packing would copy large tensors"),
    # Two copies of a tensor cost what sending it alone does at about 16 KB, be
    # it between 2, 4 or 8 devices: benchmarks/NOTES.md.
    Rule("one worker", 16 << 10, "ps", True,
         "two steps, and small tensors share one sum"),
    Rule("one worker", None, "ps", False,
         "two steps; each tensor is summed once, and large ones aren't copied"),
    Rule("several workers", 64 << 10, "ps/ps", True,
         "each byte crosses between workers twice at most, in few messages"),
    Rule("several workers", None, "ps/ps", False,
         "each byte crosses between workers twice at most; roots rotate"),
)

_WHERE = {
    "one worker, NCCL": lambda workers, nccl: workers == 1 and nccl,
    "one worker": lambda workers, nccl: workers == 1,
    "several workers": lambda workers, nccl: workers > 1,
}


def rule_for(num_bytes: int | None, topology: topology_lib.Topology,
             nccl: bool) -> Rule:
  """Returns the rule for a tensor; an unknown size counts as large.

  Args:
    num_bytes: the tensor's size.
    topology: the devices.
    nccl: whether NCCL can run on them.
  """
  for rule in RULES:
    if _WHERE[rule.where](len(topology.workers), nccl) and (
        rule.limit is None
        or (num_bytes is not None and num_bytes <= rule.limit)):
      return rule
  raise AssertionError("the table has a rule for every size and topology")
