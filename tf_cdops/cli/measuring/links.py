"""Measures the links between devices, by tensors that TensorFlow copies.

All pairs take their turns in one tf.function, each after the other, and the
sending worker's own clock times each: so neither the client nor the call of
the function is part of any time. What is timed is a tensor's way to the target
and one element's way back. At last all workers of a ring send at once, as in an
all-reduce: then a switch, or machines' cores, may be the limit, and not cables.

With many workers there are too many pairs, and those at the distances 1, 2, 3
and so on around a ring stand for all: each worker sends and receives equally
often.
"""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_cdops.cli.measuring import limits
from tf_cdops.cli.measuring import link_results
from tf_cdops.cli.measuring import sites

_MOST_PAIRS = 64  # All pairs of eight workers, and a ring of 64.
_SMALL = 16  # Elements of 4 bytes; TensorFlow aligns what it sends to 64.
_FIRST, _LARGEST = 1 << 15, 1 << 21  # The same, of tensors for bandwidth.
_GROWTH = 4
_ROUND_SECONDS = 1.0  # When a round takes that long, tensors are large enough.
_SMALL_ROUNDS, _LARGE_ROUNDS = 15, 5
_LEAST_SECONDS = 1e-6  # What tf.timestamp tells apart.
_SIDE_BY_SIDE = 16  # Small tensors on their way at once.
_CLIENT = "/job:localhost/device:CPU:0"
_LIMIT_SECONDS = 30.0  # Beyond the time that it may take.


@dataclasses.dataclass(frozen=True)
class _Pair:
  """A direction to measure; the numbers are replicas' and workers'."""

  source: int
  target: int
  source_worker: int
  is_inside: bool


def measure(site: sites.Site, seconds: float = 12.0
            ) -> tuple[link_results.LinkMeasurement, ...]:
  """Returns what the links inside workers and between them can do.

  Args:
    site: the devices. A worker's first one stands for it; its first two, for
      the links inside.
    seconds: about how long it may take; then what there is must do. A first
      round of all is made in any case.
  """
  middle, most, end = (time.monotonic() + part * seconds
                       for part in (0.5, 0.85, 1.0))
  across, inside = _across(site), _inside(site)
  pairs = [*across, *inside]
  if not pairs:
    return ()
  # A ring has each worker's costs: its own and its neighbour's.
  around = across[:len(site.topology.workers)]
  ring = [*around, *inside[::2]]
  with limits.limit(_LIMIT_SECONDS + seconds,
                    f"measuring the links among {site}"):
    alone = _Transfers(site, pairs)
    one = alone.rounds(_SMALL, _SMALL_ROUNDS, middle)
    many = _Transfers(site, ring, _SIDE_BY_SIDE).rounds(
        _SMALL, _SMALL_ROUNDS, middle)
    size, large = alone.grown(most)
    busy_size, busy = (_Transfers(site, around, at_once=True).grown(end)
                       if around else (0, {}))
  further = {pair: max(0.0, many[pair] - one[pair]) / (_SIDE_BY_SIDE - 1)
             for pair in ring}
  return tuple(
      link_results.LinkMeasurement(
          site.devices[pair.source], site.devices[pair.target], one[pair] / 2,
          _rate(size, one[pair], large[pair]), further.get(pair),
          _rate(busy_size, one[pair], busy[pair]) if pair in busy else None)
      for pair in pairs)


def _rate(size: int, least: float, most: float) -> float:
  """Returns bytes a second, from what a tensor takes beyond a small one."""
  return 4 * (size - _SMALL) / max(most - least, most / 10)


def _across(site: sites.Site) -> list[_Pair]:
  """Returns pairs of workers: a ring first, then those farther apart."""
  workers = site.topology.workers
  distances = range(1, max(2, min(len(workers), 1 + _MOST_PAIRS
                                  // len(workers))))
  return [_Pair(workers[w][0], workers[(w + distance) % len(workers)][0], w,
                False)
          for distance in distances for w in range(len(workers))
          if len(workers) > 1]


def _inside(site: sites.Site) -> list[_Pair]:
  return [_Pair(source, target, w, True)
          for w, ranks in enumerate(site.topology.workers) if len(ranks) > 1
          for source, target in itertools.permutations(ranks[:2])]


class _Transfers:
  """A function in which each pair's source sends.

  It makes what it sends, and leaves nothing on the workers.
  """

  def __init__(self, site: sites.Site, pairs: Sequence[_Pair],
               count: int = 1, at_once: bool = False):
    """Initializes.

    Args:
      site: the devices.
      pairs: of them, to measure.
      count: how many tensors of a pair go side by side.
      at_once: whether all pairs do; else, one after another.
    """
    self._at_once = at_once
    self._devices, self._hosts = site.devices, site.topology.hosts
    self._copies = site.topology.device_types == {"CPU"}
    self._pairs, self._count = pairs, count
    self._function = tf.function(self._emit, autograph=False)
    self._run(_SMALL)  # Builds it, and opens the connections.

  def rounds(self, size: int, most: int, end: float) -> dict[_Pair, float]:
    """Returns each pair's median seconds, of at least one round."""
    return {pair: statistics.median(each) for pair, each in zip(
        self._pairs, zip(*self._samples(size, most, end), strict=True),
        strict=True)}

  def grown(self, end: float) -> tuple[int, dict[_Pair, float]]:
    """Returns a size that takes its time, and each pair's seconds for it."""
    size, took = _FIRST, sum(self._run(_FIRST))
    while (size < _LARGEST and took * _GROWTH < _ROUND_SECONDS
           and time.monotonic() < end):
      size = min(size * _GROWTH, _LARGEST)
      took = sum(self._run(size))
    samples = self._samples(size, _LARGE_ROUNDS, end - took)
    # Whatever else the machines do makes some slower, and none quicker; but
    # where all are under way, one may be quick since another waits.
    least = (min(samples, key=max) if self._at_once
             else map(min, zip(*samples, strict=True)))
    return size, dict(zip(self._pairs, least, strict=True))

  def _samples(self, size: int, most: int, end: float) -> list[list[float]]:
    rounds = [self._run(size)]
    while len(rounds) < most and time.monotonic() < end:
      rounds.append(self._run(size))
    return rounds

  def _run(self, size: int) -> list[float]:
    # A clock that is set meanwhile may say anything.
    return [max(float(each), _LEAST_SECONDS)
            for each in self._function(tf.constant([size]))[0].numpy()]

  def _emit(self, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each pair's seconds, and a number that needs all that is sent."""
    sizes = [_on(host, tf.identity, size) for host in self._hosts]
    loads = {rank: _on(self._devices[rank], tf.fill, [_LARGEST],
                       tf.cast(size[0], tf.float32))
             for rank in {pair.source for pair in self._pairs}}
    # No pair begins before all workers are up.
    last, times, arrived, ends = [*sizes, *loads.values()], [], [], []
    for pair in self._pairs:
      host = self._hosts[pair.source_worker]
      with tf.control_dependencies(last):
        started = _on(host, tf.timestamp)
      with tf.control_dependencies([started]):
        sent = [_on(self._devices[pair.source], _part, loads[pair.source],
                    number, sizes[pair.source_worker])
                for number in range(self._count)]
      there = _on(self._devices[pair.target], self._receive, sent, pair)
      arrived.append(_on(host, tf.identity, there))
      with tf.control_dependencies(arrived[-1:]):
        ended = _on(host, tf.timestamp)
      times.append(_on(host, tf.subtract, ended, started))
      ends.append(ended)
      last = last if self._at_once else [ended]
    with tf.control_dependencies(ends):  # Lest times travel beside tensors.
      held = [_on(self._hosts[pair.source_worker], tf.identity, one)
              for pair, one in zip(self._pairs, times, strict=True)]
    # TensorFlow sends nothing that isn't used.
    return (_on(_CLIENT, tf.stack, held), _on(_CLIENT, tf.math.add_n, arrived))

  def _receive(self, sent: Sequence[tf.Tensor], pair: _Pair) -> tf.Tensor:
    """Returns one element that has all the tensors' arrival for condition."""
    firsts = []
    for tensor in sent:
      arrived = tf.identity(tensor)
      if pair.is_inside and self._copies:
        # One worker's CPUs hand a tensor over as it is; whatever sums it will
        # read and write it all.
        arrived = tf.raw_ops.DeepCopy(x=arrived)
      firsts.append(tf.raw_ops.Slice(input=arrived, begin=[0], size=[1]))
    return tf.math.add_n(firsts)


def _part(load: tf.Tensor, number: int, size: tf.Tensor) -> tf.Tensor:
  # Aligned, so that it isn't copied.
  return tf.raw_ops.Slice(input=load, begin=[number * _SMALL], size=size)


def _on(device: str, function: Callable[..., tf.Tensor],
        *args: object) -> tf.Tensor:
  with tf.device(device):
    return function(*args)
