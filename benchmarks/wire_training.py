"""Trains with each wire, and compares accuracy and loss for the bytes sent.

    python -m benchmarks.wire_training [--steps=500] [--seeds=3]

Models of scikit-learn's digits on four virtual workers of this process: what
crosses between them is encoded as it would be between machines. The last is
made to be hard for int8: beside its ten outputs it has one whose gradients are
a hundred times as large and never end, since it is to follow what can't be
predicted. It writes WIRES.md and wires.png beside this file.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import machine
import numpy as np
import tensorflow as tf

import tf_cdops
from tf_cdops import registry
from tf_cdops.cli import output
from tf_cdops.explaining import text_table

_FOLDER = pathlib.Path(__file__).resolve().parent
_WORKERS, _BATCH, _HELD_OUT = 4, 128, 360
_LOUD = 100.0  # The weight of the loss of what can't be predicted.
_COLOURS = "#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7"


def dense() -> list[Any]:
  return [tf.keras.layers.Flatten(),
          tf.keras.layers.Dense(128, activation="relu"),
          tf.keras.layers.Dense(64, activation="relu"),
          tf.keras.layers.Dense(10)]


def convolutional() -> list[Any]:
  return [tf.keras.layers.Conv2D(16, 3, activation="relu"),
          tf.keras.layers.Conv2D(32, 3, activation="relu"),
          tf.keras.layers.Flatten(), tf.keras.layers.Dense(64, "relu"),
          tf.keras.layers.Dense(10)]


def linear() -> list[Any]:
  """One layer: all of a scale's 1,024 weights have large ones among them."""
  return [tf.keras.layers.Flatten(), tf.keras.layers.Dense(11)]


_HARD = "linear, and a loud output"
MODELS: dict[str, Callable[[], list[Any]]] = {
    "dense, 3 layers": dense, "convolutional, 4 layers": convolutional,
    _HARD: linear}


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What one training came to.

  Attributes:
    accuracy: of the held-out images.
    losses: of each epoch.
    step_bytes: what crosses between workers in a step.
  """

  accuracy: float
  losses: tuple[float, ...]
  step_bytes: int


def wires() -> dict[str, Any]:
  """Returns what is compared, by the name for people."""
  int8 = registry.check_wire("int8")
  assert int8 is not None
  return {"float32": None, "bfloat16": "bfloat16", "float16": "float16",
          "int8": "int8", "int8, no feedback": dataclasses.replace(
              int8.codec, has_feedback=False)}


def train(layers: Callable[[], list[Any]], wire: Any, steps: int,
          seed: int) -> Outcome:
  """Trains one model with one wire."""
  images, labels = _digits()
  tf.keras.utils.set_random_seed(seed)
  names = [f"/job:localhost/replica:0/task:0/device:CPU:{i}"
           for i in range(_WORKERS)]
  topology = tf_cdops.Topology.from_devices(names, [[name] for name in names])
  spec = f"ps#{_WORKERS}"
  strategy = tf.distribute.MirroredStrategy(
      names, cross_device_ops=tf_cdops.MultiWorkerAllReduce(
          all_reduce_spec=spec, topology=topology, num_packs=1, wire=wire))
  with strategy.scope():
    model = tf.keras.Sequential(layers())
    model.compile(
        optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9),
        loss=_loss, metrics=[_accuracy, _quiet_loss])
  count = len(images) - _HELD_OUT
  per_epoch = count // _BATCH
  history = model.fit(
      images[:per_epoch * _BATCH], labels[:per_epoch * _BATCH],
      batch_size=_BATCH, epochs=-(-steps // per_epoch), verbose=0)
  _, accuracy, _ = model.evaluate(images[count:], labels[count:],
                                  batch_size=_HELD_OUT, verbose=0)
  explained = tf_cdops.explain(
      spec, topology, [(tuple(weight.shape), "float32")
                       for weight in model.trainable_weights], wire=wire)
  return Outcome(float(accuracy), tuple(history.history["_quiet_loss"]),
                 explained.total.across)


def _loss(expected: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
  """That of the digits, and, of an eleventh output, how far off it is."""
  loss = _quiet_loss(expected, outputs)
  if outputs.shape[-1] > 10:
    loss += _LOUD * tf.abs(expected[:, 1] - outputs[:, 10])
  return loss


def _quiet_loss(expected: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
  return tf.keras.losses.sparse_categorical_crossentropy(
      expected[:, 0], outputs[:, :10], from_logits=True)


def _accuracy(expected: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
  return tf.keras.metrics.sparse_categorical_accuracy(expected[:, 0],
                                                      outputs[:, :10])


def _digits() -> tuple[np.ndarray, np.ndarray]:
  from sklearn import datasets
  images, labels = datasets.load_digits(return_X_y=True)
  order = np.random.default_rng(0).permutation(len(images))
  chance = np.random.default_rng(1).normal(size=len(images))
  return (images[order].reshape(-1, 8, 8, 1).astype("float32") / 16,
          np.stack([labels[order], chance], axis=1).astype("float32"))


def report(results: dict[str, dict[str, list[Outcome]]], steps: int) -> str:
  """Returns the page."""
  rows = []
  for model, by_wire in results.items():
    plain = _mean(by_wire["float32"])
    for wire, outcomes in by_wire.items():
      accuracy = _mean(outcomes)
      rows.append((
          model, wire, f"{accuracy:.2f}", f"{accuracy - plain:+.2f}",
          f"{statistics.fmean(o.losses[-1] for o in outcomes):.4f}",
          f"{outcomes[0].step_bytes * steps / 1e6:.1f}",
          f"{outcomes[0].step_bytes / by_wire['float32'][0].step_bytes:.3f}"))
  seeds = len(next(iter(next(iter(results.values())).values())))
  loud = (
      " The last model also has an eleventh output, which is to follow chance, "
      f"with a loss that weighs {_LOUD:g} times as much: beside its gradients, "
      "in the same 1,024, int8 rounds those of the digits to 0, and only with "
      "feedback do they get through. The loss is that of the digits.")
  return "\n\n".join([
      "# Training with a wire",
      f"`python -m benchmarks.wire_training --steps={steps} --seeds={seeds}`: "
      f"scikit-learn's digits, batches of {_BATCH} on {_WORKERS} virtual "
      f"workers of one process, {_HELD_OUT} images held out, SGD with "
      f"momentum, `ps#{_WORKERS}` in one pack; means over {seeds} seeds."
      + (loud if _HARD in results else ""),
      text_table.markdown(("", ""), machine.facts().items()),
      text_table.markdown(
          ("model", "wire", ">accuracy, %", ">points more than float32",
           ">loss at the end", ">MB between workers", ">of float32's"), rows),
      "![Loss against bytes sent](wires.png)"]) + "\n"


def _mean(outcomes: Sequence[Outcome]) -> float:
  return 100 * statistics.fmean(one.accuracy for one in outcomes)


def draw(results: dict[str, dict[str, list[Outcome]]], path: str) -> None:
  """Draws the loss against the bytes sent so far."""
  import matplotlib
  matplotlib.use("Agg")  # There may be no screen.
  from matplotlib import pyplot
  figure, (row,) = pyplot.subplots(1, len(results), figsize=(13, 4),
                                   layout="constrained", squeeze=False)
  per_epoch = (len(_digits()[0]) - _HELD_OUT) // _BATCH
  for axes, (model, by_wire) in zip(row, results.items(), strict=True):
    for colour, (wire, outcomes) in zip(_COLOURS, by_wire.items(),
                                        strict=True):
      losses = np.mean([one.losses for one in outcomes], axis=0)
      sent = outcomes[0].step_bytes * per_epoch * np.arange(
          1, len(losses) + 1) / 1e6
      axes.plot(sent, losses, color=colour, label=wire,
                linestyle="--" if "no " in wire else "-")
    axes.set(xlabel="MB sent between workers", ylabel="loss", title=model,
             xscale="log", yscale="log")
    axes.spines[["top", "right"]].set_visible(False)
  row[0].legend(frameon=False)
  figure.savefig(path, dpi=80)
  pyplot.close(figure)


def main() -> None:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--steps", type=int, default=500)
  parser.add_argument("--seeds", type=int, default=3)
  parser.add_argument("--out", default=str(_FOLDER), metavar="FOLDER")
  parser.add_argument("--models", default="", metavar="REGEX",
                      help="only those with this in their name, or, with "
                           "'none', none: the page is made again")
  args = parser.parse_args()
  out = pathlib.Path(args.out)
  path = out / "wire_training.json"
  there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
  tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * _WORKERS)
  chosen = {model: layers for model, layers in MODELS.items()
            if re.search(args.models, model)}
  for model, layers in chosen.items():
    there[model] = _train_all(layers, args.steps, args.seeds, model)
    output.write_json(str(path), there)
  results = {model: {wire: [Outcome(**one) for one in outcomes]
                     for wire, outcomes in there[model].items()}
             for model in MODELS if model in there}
  draw(results, str(out / "wires.png"))
  output.write_text(str(out / "WIRES.md"), report(results, args.steps))
  print(f"Wrote {path}, {out / 'WIRES.md'} and {out / 'wires.png'}.")


def _train_all(layers: Callable[[], list[Any]], steps: int, seeds: int,
               model: str) -> dict[str, list[dict[str, Any]]]:
  """Trains a model with each wire; returns outcomes as JSON has them."""
  found = {}
  with output.progress(model, len(wires())) as advance:
    for name, wire in wires().items():
      found[name] = [dataclasses.asdict(train(layers, wire, steps, seed))
                     for seed in range(seeds)]
      advance()
  return found


if __name__ == "__main__":
  main()
