"""Names the ops that are emitted, and remembers what was emitted into a graph.

A profile has the names of ops and nothing else to tell them by. Those of bucket
3 begin with "tf_cdops/bucket_3/xring/", under the scopes of who called; a
second batch of one graph has "tf_cdops_1". A scope adds no node.
"""

import contextlib
import dataclasses
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops.base import topology as topology_lib
from tf_cdops.cost import given as given_links
from tf_cdops.planning import planner

_SCOPE = "tf_cdops"
_MOST = 64  # A long run may have ever new graphs.
# What a scope's name can't have, and an algorithm's may.
_ODD = re.compile(r"[^\w.\-/]", re.ASCII)


@contextlib.contextmanager
def batch_scope(note: Callable[[str], None] | None) -> Iterator[None]:
  """Has the ops of a batch begin with its name; eager ones have none.

  Args:
    note: is told the name.
  """
  if tf.executing_eagerly():
    yield
    return
  with tf.name_scope(_SCOPE) as scope:
    if note is not None:
      note(scope.rstrip("/"))
    yield


def bucket_scope(number: int,
                 algorithm: str) -> contextlib.AbstractContextManager[Any]:
  """Returns the scope of a bucket's ops, inside that of its batch."""
  if tf.executing_eagerly():
    return contextlib.nullcontext()
  return tf.name_scope(f"bucket_{number}/{_ODD.sub('_', algorithm)}")


@dataclasses.dataclass(frozen=True)
class Batch:
  """A batch that was emitted into a graph.

  Attributes:
    scope: what its ops' names begin with, in that graph.
    plan: its buckets.
    sizes: its tensors.
    shapes: theirs.
    topology: the devices, those of other programs too.
    network: the links by which it was planned, if they were given.
    graph: the graph, as long as somebody else keeps it.
  """

  scope: str
  plan: planner.Plan
  sizes: tuple[planner.TensorSize, ...]
  shapes: tuple[tf.TensorShape, ...]
  topology: topology_lib.Topology
  network: given_links.Given | None
  graph: "weakref.ref[tf.Graph]"


class Emitted:
  """The batches that were emitted last."""

  def __init__(self) -> None:
    self._batches: list[Batch] = []

  def __deepcopy__(self, memo: Any) -> "Emitted":
    return Emitted()

  def noting(self, plan: planner.Plan, sizes: tuple[planner.TensorSize, ...],
             tensors: Sequence[Sequence[tf.Tensor]],
             topology: topology_lib.Topology,
             network: given_links.Given | None = None
             ) -> Callable[[str], None]:
    """Returns what takes note of a batch, given its scope."""

    def note(scope: str) -> None:
      graph = tf.compat.v1.get_default_graph()
      self._batches = [*self._batches, Batch(
          scope, plan, sizes, tuple(values[0].shape for values in tensors),
          topology, network, weakref.ref(graph))][-_MOST:]

    return note

  def batches(self) -> list[Batch]:
    """Returns those whose graph is still there, the latest last."""
    return [batch for batch in self._batches if batch.graph() is not None]
