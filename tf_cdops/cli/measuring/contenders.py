"""Who is measured: specs of ours, and each of TensorFlow's own classes."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_cdops import cross_device_ops
from tf_cdops import registry
from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.execution import executor
from tf_cdops.planning import planner
from tf_cdops.registry import proof


@dataclasses.dataclass(frozen=True)
class Contender:
  """A way to all-reduce.

  Attributes:
    name: what tables call it.
    ours: whether a wrong result is a fault of this package.
    make_ops: makes its cross-device ops; None stands for TensorFlow's default.
    plan: plans tensors on devices; None where there is no plan of ours.
    wire: how messages may be encoded.
  """

  name: str
  ours: bool
  make_ops: Callable[[], Any]
  plan: Callable[[tuple[planner.TensorSize, ...], topology_lib.Topology],
                 planner.Plan] | None = None
  wire: registry.Wire | None = None


def of_spec(spec: Any, packing: planner.Packing | None = None,
            name: str | None = None, link: given_links.Given | None = None,
            wire: registry.Wire | None = None) -> Contender:
  """Returns the contender that follows a spec, checked at once.

  Args:
    spec: as `MultiWorkerAllReduce` takes it.
    packing: what is joined; None for what the spec's file says, if it does.
    name: for tables; the spec's text if None.
    link: the one between workers, or all of them, if they are known; those
      of the spec's file go before.
    wire: how messages are encoded; if None, as the spec's file says.
  """
  parsed = planner.parse_all_reduce_spec(spec)
  arguments: dict[str, Any] = packing.arguments() if packing else {}
  network = parsed.network or link
  if wire is None:
    wire = parsed.wire_for(None, "across")  # The file's, if it has one.
  if wire is not None:
    arguments |= {"wire": wire.codec, "wire_scope": wire.scope}
  return Contender(
      name or str(parsed), True,
      lambda: cross_device_ops.MultiWorkerAllReduce(
          all_reduce_spec=parsed, network=network, **arguments),
      lambda sizes, topology: executor.checked_plan(
          sizes, topology, parsed, packing, network, wire), wire)


def of_tensorflow() -> tuple[Contender, ...]:
  """Returns TensorFlow's own classes, as a user can choose them."""
  hierarchical = tf.distribute.HierarchicalCopyAllReduce
  return (
      Contender("TF ReductionToOneDevice", False,
                tf.distribute.ReductionToOneDevice),
      Contender("TF HierarchicalCopy(0)", False, lambda: hierarchical(0)),
      Contender("TF HierarchicalCopy(1)", False, lambda: hierarchical(1)),
      Contender("TF default", False, lambda: None),
  )


def check_spec(spec: Any, topology: topology_lib.Topology,
               sizes: Iterable[planner.TensorSize],
               wire: registry.Wire | None = None) -> None:
  """Raises unless the devices can follow the spec for these tensors."""
  plan = executor.checked_plan(
      tuple(sizes), topology, planner.parse_all_reduce_spec(spec), wire=wire)
  for algorithm in {plan.algorithm(bucket) for bucket in plan.buckets
                    if bucket.wired}:
    proof.prove(algorithm, topology,
                len(topology.devices) * algorithm.shards)
