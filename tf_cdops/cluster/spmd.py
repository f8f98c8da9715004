"""SpmdStrategy: each worker runs the program, and gradients meet between."""

import functools
import json
import secrets
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops import cross_device_ops as cross_device_ops_lib
from tf_cdops.base import tf_compat
from tf_cdops.base import version
from tf_cdops.cluster import addresses
from tf_cdops.cluster import first_batch
from tf_cdops.cluster import joining
from tf_cdops.cluster import ports
from tf_cdops.cluster import silent_peers
from tf_cdops.cluster import spmd_arguments
from tf_cdops.cluster import spmd_watch

_SEEDS = 1 << 31


class SpmdStrategy(tf.distribute.MultiWorkerMirroredStrategy):
  """One program a worker: TensorFlow's strategy for that, for Keras 3 too.

  Every worker runs the same program, with the cluster in TF_CONFIG, as for
  `tf.distribute.MultiWorkerMirroredStrategy`, which this is. On one machine,
  `python -m tf_cdops launch --workers=2 train.py` starts them:

      strategy = tf_cdops.SpmdStrategy()
      with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
      model.fit(x, y)

  `fit`, `evaluate` and `predict` take the same data in every program, and each
  works on its share: a batch is the batch of all replicas together. Gradients
  are summed inside a worker as the spec says, and between workers by
  TensorFlow's collective ops, in packs of which the first are on their way
  while others are being computed.

  Unless the program has set a seed, all programs get the same one
  (`tf.random.set_seed`), drawn by the first, so that they shuffle alike.
  """

  def __init__(self, cluster_resolver: Any = None, *,
               all_reduce_spec: Any = "auto", wire: Any = None,
               bytes_per_pack: int | None = None, sparse: str = "gather",
               on_nonfinite: str | None = None,
               timeout: float | None = None,
               communication_options: Any = None):
    """Waits for all programs, ten minutes at the most, and says for whom.

    Make it before TensorFlow is used for anything else.

    Args:
      cluster_resolver: a tf.distribute.cluster_resolver.ClusterResolver that
        says who the workers are and which this is; None for TF_CONFIG. Without
        TF_CONFIG there is one worker.
      all_reduce_spec: what sums inside a worker, by size: any algorithm, or
        "auto". A pair says how workers exchange, too: "ps/collective", by
        TensorFlow's ring, as without a wire, or "ps/ps", in which each worker
        sums a part. "collective" is TensorFlow's ring over all devices.
      wire: how messages between workers are made smaller, as of
        `MultiWorkerAllReduce`: "bfloat16", "float16", "int8" or a codec. Each
        term is rounded once, and the sum once; sums are made in float32.
      bytes_per_pack: gradients travel in packs of at most so many bytes; a
        larger one alone. None to choose. `bytes_per_pack` of the options goes
        before it.
      sparse: how tf.IndexedSlices travel: see `AllReduceCrossDeviceOps`.
      on_nonfinite: "raise" or "drop", for numbers that aren't finite: see
        `AllReduceCrossDeviceOps`. All programs raise, and each logs what is
        dropped of its own replicas.
      timeout: the seconds that a call of a function with all-reduces may take,
        its tracing not included; with `steps_per_execution`, all steps of one
        call. Then the program ends with exit code 3 and says which worker
        hasn't made the call, hasn't come to its all-reduces, or reduces tensors
        of other shapes. None for no limit. Workers that die or are stopped are
        noticed without it. Take more than any program's pause between steps,
        for which the others wait in theirs, and two minutes or more: TensorFlow
        may need one to let a dataset's iterator go.
      communication_options: tf.distribute.experimental.CommunicationOptions.
        Its `implementation` chooses NCCL for GPUs; that was never tried.

    Raises:
      ValueError: for a wrong argument, before anything is started.
      ClusterError: if this program's port is in use, or programs differ.
    """
    settings = spmd_arguments.check_settings(
        all_reduce_spec, wire, bytes_per_pack, sparse, on_nonfinite, timeout)
    options = spmd_arguments.check_options(communication_options)
    resolver = spmd_arguments.resolver_of(cluster_resolver)
    cluster = spmd_arguments.cluster_of(resolver)
    spmd_arguments.check_nothing_has_begun(cluster)
    spmd_arguments.split_cpu()
    self._tasks = cluster.workers if cluster else ()
    self._watch = (spmd_watch.SpmdWatch(timeout, self._tasks)
                   if timeout is not None else None)

    def begin() -> None:
      tf.distribute.Strategy.__init__(self, tf_compat.SpmdExtended(
          self, resolver, options,
          functools.partial(self._make_ops, settings)))

    if cluster is None:
      begin()
      return
    assert cluster.own is not None
    ports.wait_until_free(addresses.split_address(cluster.own.address)[1], 0.0)
    tf_compat.configure_coordination(
        resolver, joining.JOIN_SECONDS, joining.HEARTBEAT_SECONDS)
    with joining.telling_who_is_missing(cluster):
      begin()
      self._agree(settings, cluster.own)
    silent_peers.name_at_exit(
        tuple(task for task in cluster.workers if task != cluster.own))

  def _make_ops(self, settings: spmd_arguments.Settings,
                devices: Sequence[str], num_workers: int, rank: int) -> Any:
    return cross_device_ops_lib.SpmdAllReduce(
        devices, num_workers, rank=rank, spec=settings.spec,
        wire=settings.wire, bytes_per_pack=settings.bytes_per_pack,
        sparse=settings.sparse, on_nonfinite=settings.on_nonfinite,
        on_call=self._watch.on_call if self._watch else None,
        on_arrival=self._watch.on_arrival if self._watch else None)

  def _agree(self, settings: spmd_arguments.Settings,
             own: addresses.Task) -> None:
    """Checks that all programs are alike, and lets them know each other."""
    same = settings.told() | {
        "devices": [name.rpartition("/device:")[2]
                    for name in self.extended.worker_devices],
        "tensorflow": tf.__version__, "tf_cdops": version.__version__}
    told = self.tell_others(
        {"same": same, "seed": secrets.randbelow(_SEEDS),
         "port": self._watch.listen(own) if self._watch else 0})
    joining.check_agreement([one["same"] for one in told], self._tasks)
    if self._watch:
      self._watch.ask_at([one["port"] for one in told])
    if tf.compat.v1.get_seed(None) == (None, None):
      tf.random.set_seed(told[0]["seed"])

  def tell_others(self, mine: Any) -> list[Any]:
    """Returns what each program tells, in their order, once all have done so.

    Args:
      mine: what this one tells, of which JSON can be made.
    """
    ops: cross_device_ops_lib.SpmdAllReduce = self.extended._cross_device_ops
    text = json.dumps(mine) + "\n"
    joined = ops.gather_from_programs(tf.io.decode_raw(text, tf.uint8))
    return [json.loads(line)
            for line in joined.numpy().tobytes().decode().splitlines()]

  def name_tensors(self, variables: Iterable[Any]) -> bool:
    """Lets messages name variables: see `AllReduceCrossDeviceOps`."""
    ops: cross_device_ops_lib.SpmdAllReduce = self.extended._cross_device_ops
    return ops.name_tensors(variables)

  def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
    """As `tf.distribute.Strategy.reduce`, and of structures of values, too.

    Keras 3 asks for both that and the mean of scalars "along axis 0".

    Args:
      reduce_op: tf.distribute.ReduceOp.SUM or MEAN, or their names.
      value: what replicas have, or a structure of that.
      axis: the dimension to reduce over, too; a scalar has none.
    """
    if first_batch.is_asked_for(sys._getframe(1)):
      return first_batch.share_of_first(self, value)
    return tf.nest.map_structure(
        lambda one: super(SpmdStrategy, self).reduce(
            reduce_op, one, None if _is_scalar(one) else axis), value)


def _is_scalar(value: Any) -> bool:
  if isinstance(value, tf.distribute.DistributedValues):
    value = value.values[0]
  if isinstance(value, tf.IndexedSlices):
    return False
  return tf.convert_to_tensor(value).shape.rank == 0
