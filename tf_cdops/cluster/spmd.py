"""SpmdStrategy: each worker runs the program, and gradients meet between."""

import json
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_cdops import cross_device_ops as cross_device_ops_lib
from tf_cdops.base import errors
from tf_cdops.base import tf_compat
from tf_cdops.base import version
from tf_cdops.cluster import addresses
from tf_cdops.cluster import joining
from tf_cdops.cluster import ports
from tf_cdops.cluster import progress
from tf_cdops.cluster import side_channel
from tf_cdops.cluster import silent_peers
from tf_cdops.cluster import spmd_arguments
from tf_cdops.cluster import step_timeout
from tf_cdops.execution import nonfinite
from tf_cdops.execution import sparse as sparse_lib
from tf_cdops.planning import planner

_ASK_SECONDS = 5.0
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
        hasn't made the call, or hasn't come to its all-reduces. None for no
        limit. Workers that die or are stopped are noticed without it. Take two
        minutes or more: after a pause TensorFlow may need one, between steps,
        to let a dataset's iterator go.
      communication_options: tf.distribute.experimental.CommunicationOptions.
        Its `implementation` chooses NCCL for GPUs; that was never tried.

    Raises:
      ValueError: for a wrong argument, before anything is started.
      ClusterError: if this program's port is in use, or programs differ.
    """
    spec = planner.parse_all_reduce_spec(all_reduce_spec)
    checked_wire = spec.wire_for(wire, "across")
    options = spmd_arguments.check_options(communication_options)
    if spec.plans:
      raise errors.SpecError(
          f"`all_reduce_spec` ({all_reduce_spec!r}) must have no plans: those "
          "are for one client, and programs of their own make theirs.")
    if bytes_per_pack is not None:
      errors.check_whole_number("bytes_per_pack", bytes_per_pack, 1)
    sparse_lib.check_mode(sparse)
    nonfinite.check_mode(on_nonfinite)
    spmd_arguments.check_timeout(timeout)
    resolver = spmd_arguments.resolver_of(cluster_resolver)
    cluster = spmd_arguments.cluster_of(resolver)
    spmd_arguments.check_nothing_has_begun(cluster)
    self._channel: side_channel.SideChannel | None = None
    self._places: list[tuple[str, int]] = []
    self._tasks = cluster.workers if cluster else ()
    self._timeout = (step_timeout.StepTimeout(timeout, self._who_is_missing)
                     if timeout else None)
    self._progress = progress.Progress()
    spmd_arguments.split_cpu()

    def make_ops(devices: Sequence[str], num_workers: int, rank: int) -> Any:
      return cross_device_ops_lib.SpmdAllReduce(
          devices, num_workers, spec=spec, wire=checked_wire, rank=rank,
          bytes_per_pack=bytes_per_pack, sparse=sparse,
          on_nonfinite=on_nonfinite,
          on_call=self._timeout.enter if self._timeout else None,
          on_arrival=self._progress.note if self._timeout else None)

    if cluster is None:
      tf.distribute.Strategy.__init__(self, tf_compat.SpmdExtended(
          self, resolver, options, make_ops))
      return
    assert cluster.own is not None
    ports.wait_until_free(addresses.split_address(cluster.own.address)[1], 0.0)
    tf_compat.configure_coordination(
        resolver, joining.JOIN_SECONDS, joining.HEARTBEAT_SECONDS)
    with joining.telling_who_is_missing(cluster):
      tf.distribute.Strategy.__init__(self, tf_compat.SpmdExtended(
          self, resolver, options, make_ops))
      self._agree({
          "all_reduce_spec": str(spec), "wire": str(checked_wire),
          "bytes_per_pack": bytes_per_pack, "sparse": sparse,
          "on_nonfinite": on_nonfinite, "timeout": timeout})
    silent_peers.name_at_exit(
        tuple(task for task in cluster.workers if task != cluster.own))

  def _agree(self, settings: dict[str, Any]) -> None:
    """Checks that all programs are alike, and lets them know each other."""
    rank = self.extended._id_in_cluster
    if self._timeout is not None:
      timeout = self._timeout
      self._channel = side_channel.SideChannel(
          side_channel.host_of(self._tasks[rank]),
          lambda: (timeout.count, self._progress.count))
    same = settings | {
        "devices": [name.rpartition("/device:")[2]
                    for name in self.extended.worker_devices],
        "tensorflow": tf.__version__, "tf_cdops": version.__version__}
    told = self.tell_others(
        {"same": same, "seed": secrets.randbelow(_SEEDS),
         "port": self._channel.port if self._channel else 0})
    joining.check_agreement([one["same"] for one in told], self._tasks)
    self._places = [(side_channel.host_of(task), one["port"])
                    for task, one in zip(self._tasks, told, strict=True)]
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

  def name_tensors(self, variables: Iterable[Any]) -> None:
    """Lets messages name variables: see `AllReduceCrossDeviceOps`."""
    ops: cross_device_ops_lib.SpmdAllReduce = self.extended._cross_device_ops
    ops.name_tensors(variables)

  def _who_is_missing(self, number: int) -> str:
    """Says who hasn't made the call of that number."""
    told = side_channel.ask(self._places, _ASK_SECONDS)
    most = max((one[1] for one in told if one is not None), default=0)
    missing = []
    for task, one in zip(self._tasks, told, strict=True):
      if one is None:
        missing.append(f"{task} does not answer")
      elif one[0] < number:
        missing.append(f"{task} has not entered it (it has made {one[0]} calls "
                       f"of {number})")
      elif one[1] < most:
        missing.append(f"{task} has entered it, but has not come to its "
                       "all-reduce, as others have; it may wait for its input")
    return "; ".join(missing) or (
        "all workers have come to its all-reduce, so it may only be slow")

  def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
    """As `tf.distribute.Strategy.reduce`, and of structures of values, too.

    Keras 3 asks for both that and the mean of scalars "along axis 0".

    Args:
      reduce_op: tf.distribute.ReduceOp.SUM or MEAN, or their names.
      value: what replicas have, or a structure of that.
      axis: the dimension to reduce over, too; a scalar has none.
    """
    return tf.nest.map_structure(
        lambda one: super(SpmdStrategy, self).reduce(
            reduce_op, one, None if _is_scalar(one) else axis), value)


def _is_scalar(value: Any) -> bool:
  if isinstance(value, tf.distribute.DistributedValues):
    value = value.values[0]
  if isinstance(value, tf.IndexedSlices):
    return False
  return tf.convert_to_tensor(value).shape.rank == 0
