"""Measures what `on_nonfinite` and `ReplicaCheck` cost.

    python -m benchmarks.guard [--rounds=30] [--parts=bare]

A bare all-reduce of ResNet-50's gradients, and steps that train a small
convolutional net, each with the guard and without, in turn, round by round;
then what `ReplicaCheck(every=100)` takes of that training, after a hundred
steps and as a callback of `fit` with a thousand. It writes GUARD.md and
guard.json beside this file; parts that aren't measured anew stay there as they
are.
"""

import argparse
import dataclasses
import functools
import pathlib
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import machine
from benchmarks import resuming
from benchmarks import workloads
import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops.cli import output
from tf_cdops.cli.measuring import contenders
from tf_cdops.cli.measuring import exact_inputs
from tf_cdops.cli.measuring import sites
from tf_cdops.cli.measuring import steps
from tf_cdops.cli.measuring import timing
from tf_cdops.explaining import text_table

_FOLDER = pathlib.Path(__file__).resolve().parent
_MODES = (None, "raise", "drop")
_PLAIN = str(None)
_DEVICES = (2, 4)
_BATCH, _IMAGE, _CLASSES = 32, (28, 28, 1), 10
_EVERY, _STEPS, _FITS = 100, 1000, 5
_BARE, _TRAINING, _CHECK = 1.35, 1.05, 1.01  # What each may cost at most.


@dataclasses.dataclass(frozen=True)
class Cost:
  """What something costs.

  Attributes:
    what: what was run.
    guard: with what.
    seconds: without it, the median.
    ratios: of each round, with it and without.
    limit: what the median ratio may be.
  """

  what: str
  guard: str
  seconds: float
  ratios: Sequence[float]
  limit: float

  @property
  def ratio(self) -> float:
    return statistics.median(self.ratios)


def make_ops(mode: str | None) -> Any:
  return tf_cdops.MultiWorkerAllReduce(all_reduce_spec="auto",
                                       on_nonfinite=mode)


def compared(what: str, runs: Mapping[str, Callable[[], None]], rounds: int,
             limit: float) -> list[Cost]:
  """Runs each in turn; returns what those cost that aren't plain."""
  timed = timing.rounds(runs)
  next(timed), next(timed)  # The first allocate what later ones use.
  seconds = [next(timed) for _ in range(rounds)]
  plain = statistics.median(one[_PLAIN] for one in seconds)
  return [Cost(what, name, plain, [one[name] / one[_PLAIN] for one in seconds],
               limit) for name in runs if name != _PLAIN]


def bare(devices: int, rounds: int) -> list[Cost]:
  """An all-reduce and nothing else.

  Once it returns its sums; and once each is used and let go at once, so that
  the next finds its memory in the processor's cache. With the guard no sum is
  let go before all have been looked at.
  """
  inputs = exact_inputs.make(sites.local("CPU", devices),
                             workloads.named("resnet").sizes)
  returned, let_go = {}, {}
  for mode in _MODES:
    step = steps.build(contenders.Contender(
        str(mode), True, lambda mode=mode: make_ops(mode)), inputs)
    if steps.count_wrong(step, inputs):
      raise AssertionError(f"{mode}: a sum is wrong")
    returned[str(mode)] = lambda step=step: step.results() and None
    let_go[str(mode)] = step.run
  what = f"all-reduce of ResNet-50, {devices} devices"
  return [*compared(what, returned, rounds, _BARE),
          *compared(f"{what}, each sum let go at once", let_go, rounds, _BARE)]


class Training:
  """A small convolutional net that is trained on some devices."""

  def __init__(self, devices: int, mode: str | None):
    strategy = tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(devices)], cross_device_ops=make_ops(mode))
    with strategy.scope():
      tf.keras.utils.set_random_seed(0)
      self.model = tf.keras.Sequential([
          tf.keras.layers.Input(_IMAGE),
          tf.keras.layers.Conv2D(32, 3, activation="relu"),
          tf.keras.layers.MaxPooling2D(),
          tf.keras.layers.Conv2D(64, 3, activation="relu"),
          tf.keras.layers.MaxPooling2D(), tf.keras.layers.Flatten(),
          tf.keras.layers.Dense(_CLASSES)])
      self.optimizer = tf.keras.optimizers.Adam()
      self.optimizer.build(self.model.trainable_variables)
    rng = np.random.default_rng(0)
    images = rng.normal(size=[_BATCH, *_IMAGE]).astype("float32")
    labels = rng.integers(0, _CLASSES, _BATCH)

    def replica() -> None:
      with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels, self.model(images, training=True)))
      weights = self.model.trainable_variables
      self.optimizer.apply_gradients(zip(tape.gradient(
          loss, [weight.value for weight in weights]), weights, strict=True))

    self.step = tf.function(lambda: strategy.run(replica), autograph=False)
    self.step()

  def run(self, count: int = 5) -> None:
    for _ in range(count):
      self.step()
    self.optimizer.iterations.numpy()

  @property
  def variables(self) -> list[Any]:
    return [*self.model.trainable_variables, *self.optimizer.variables]


def training(devices: int, rounds: int) -> list[Cost]:
  """Steps of training, with the guard and without."""
  return compared(
      f"5 steps of training, {devices} devices",
      {str(mode): Training(devices, mode).run for mode in _MODES}, rounds,
      _TRAINING)


def checking(devices: int) -> list[Cost]:
  """Steps, and after so many of them a check of the replicas.

  Each is timed by itself: steps vary by more than a check takes.
  """
  trained = Training(devices, None)
  trained.run()
  check = tf_cdops.ReplicaCheck(every=_EVERY)
  plain, checks = [], []
  for _ in range(_STEPS // _EVERY):
    plain.append(timing.seconds_of(lambda: trained.run(_EVERY)))
    checks.append(timing.seconds_of(lambda: check(trained.variables)))
  return [
      Cost(f"{_EVERY} steps of training, {devices} devices", "ReplicaCheck",
           statistics.median(plain),
           [1 + a / b for a, b in zip(checks, plain, strict=True)], _CHECK),
      fitting(trained, devices)]


class _Timed(tf_cdops.ReplicaCheck):
  """Knows how long it took."""

  seconds = 0.0

  def __call__(self, variables: Any) -> None:
    self.seconds += timing.seconds_of(lambda: super(_Timed, self).__call__(
        variables))


def fitting(trained: Training, devices: int) -> Cost:
  """A thousand steps of `fit` with the callback; the first check is traced."""
  model, batch = trained.model, _BATCH * devices
  model.compile(trained.optimizer,
                tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
  rng = np.random.default_rng(0)
  images = rng.normal(size=[_STEPS * batch, *_IMAGE]).astype("float32")
  labels = rng.integers(0, _CLASSES, len(images))
  model.fit(images[:4 * batch], labels[:4 * batch], batch, verbose=0)
  plain, ratios = [], []
  for _ in range(_FITS):
    check = _Timed(every=_EVERY)
    seconds = timing.seconds_of(lambda check=check: model.fit(
        images, labels, batch, verbose=0, callbacks=[check]) and None)
    plain.append(seconds - check.seconds)
    ratios.append(seconds / plain[-1])
  return Cost(f"fit, {_STEPS} steps, {devices} devices",
              f"ReplicaCheck(every={_EVERY}), a callback",
              statistics.median(plain), ratios, _CHECK)


def parts(rounds: int) -> dict[str, Callable[[], list[Cost]]]:
  """Returns what there is to measure, by name."""
  return {
      **{f"{what.__name__}/{devices}": functools.partial(what, devices, rounds)
         for devices in _DEVICES for what in (bare, training)},
      f"checking/{_DEVICES[0]}": lambda: checking(_DEVICES[0])}


def report(costs: Sequence[Cost], rounds: int) -> str:
  rows = []
  for cost in costs:
    summary = timing.Summary.from_samples(cost.ratios)
    rows.append((
        cost.what, cost.guard, f"{1e3 * cost.seconds:.1f}",
        f"{cost.ratio:.3f}", f"{summary.low:.3f} to {summary.high:.3f}",
        f"{cost.limit:g}", "yes" if cost.ratio <= cost.limit else "no"))
  return "\n\n".join([
      "# What the guard costs",
      f"`python -m benchmarks.guard --rounds={rounds}`: logical CPU devices of "
      "one machine, the spec `auto`. A ratio is the median over rounds of the "
      "time with the guard to the time without, in the same round; then where "
      "the median lies with a confidence of 95%. The net has two convolutions "
      f"and a dense layer, batches of {_BATCH} images of 28 x 28 on each "
      "device, and Adam.",
      text_table.markdown(("", ""), machine.facts().items()),
      text_table.markdown(
          ("what", "with", ">without, ms", ">ratio", "95%", ">limit", "holds"),
          rows)]) + "\n"


def main() -> None:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--rounds", type=int, default=30)
  parser.add_argument("--parts", default="", metavar="REGEX",
                      help="only those with this in their name, such as "
                           "training/2 or checking")
  parser.add_argument("--out", default=str(_FOLDER), metavar="FOLDER")
  args = parser.parse_args()
  out = pathlib.Path(args.out)
  there = resuming.read(out / "guard.json")
  if (there["machine"], there.get("rounds")) != (machine.facts(), args.rounds):
    there = {"machine": machine.facts(), "rounds": args.rounds, "parts": {}}
  sites.configure_cpus(max(_DEVICES))
  tf.get_logger().setLevel("ERROR")
  every = parts(args.rounds)
  for name, measure in every.items():
    if re.search(args.parts, name):
      there["parts"][name] = [dataclasses.asdict(cost) for cost in measure()]
      output.write_json(str(out / "guard.json"), there)
  text = report([Cost(**cost) for name in every
                 for cost in there["parts"].get(name, [])], args.rounds)
  output.write_text(str(out / "GUARD.md"), text)
  print(text)


if __name__ == "__main__":
  main()
