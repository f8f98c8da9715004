"""Nets with a real backward pass, of plain ops, to train on several hosts."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

# Blocks, and channels inside them, of ResNet-50's four stages.
_STAGES = (3, 64), (4, 128), (6, 256), (3, 512)
_IMAGE, _CLASSES, _WIDEN = (64, 64, 3), 1000, 4
_WORDS, _WIDTH, _LENGTH, _HIDDEN = 50_000, 128, 1, (512,) * 40


@dataclasses.dataclass(frozen=True)
class Net:
  """A net.

  Attributes:
    shapes: of its weights, in the order in which they are used.
    logits: what it makes of weights and examples.
    examples: so many of them.
    classes: how many labels there are.
  """

  shapes: tuple[tuple[int, ...], ...]
  logits: Callable[[Iterator[tf.Tensor], tf.Tensor], tf.Tensor]
  examples: Callable[[np.random.Generator, int], np.ndarray]
  classes: int

  def weights(self) -> list[np.ndarray]:
    """Returns what training begins with; vectors scale, and begin at 1."""
    generator = np.random.default_rng(0)
    return [np.ones(shape, np.float32) if len(shape) == 1 else
            (generator.standard_normal(shape)
             / math.sqrt(math.prod(shape[:-1]))).astype(np.float32)
            for shape in self.shapes]

  def gradients(self, weights: Sequence[tf.Variable], examples: tf.Tensor,
                labels: tf.Tensor) -> list[tf.Tensor | tf.IndexedSlices]:
    """Returns the gradients of the mean loss."""
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels, self.logits(iter(weights), examples)))
    found: list[tf.Tensor] = tape.gradient(loss, list(weights))
    return found


def _resnet_shapes() -> Iterator[tuple[int, ...]]:
  """Kernels, each with a scale for its output, and the last layer."""
  inputs = 64
  yield from ((7, 7, 3, inputs), (inputs,))
  for blocks, channels in _STAGES:
    for block in range(blocks):
      outputs = _WIDEN * channels
      kernels = [(1, 1, inputs, channels), (3, 3, channels, channels),
                 (1, 1, channels, outputs)]
      if block == 0:
        kernels.append((1, 1, inputs, outputs))
      for kernel in kernels:
        yield from (kernel, kernel[-1:])
      inputs = outputs
  yield inputs, _CLASSES


def _resnet(weights: Iterator[tf.Tensor], images: tf.Tensor) -> tf.Tensor:
  def convolved(inputs: tf.Tensor, stride: int = 1) -> tf.Tensor:
    outputs = tf.nn.conv2d(inputs, next(weights), stride, "SAME")
    # Of no batch's statistics, which would have to be summed, too.
    return outputs * next(weights)

  values = tf.nn.relu(convolved(images, 2))
  for stage, (blocks, _) in enumerate(_STAGES):
    for block in range(blocks):
      stride = 2 if block == 0 and stage else 1
      inner = tf.nn.relu(convolved(values))
      inner = tf.nn.relu(convolved(inner, stride))
      inner = convolved(inner)
      values = tf.nn.relu(
          inner + (convolved(values, stride) if block == 0 else values))
  return tf.matmul(tf.reduce_mean(values, (1, 2)), next(weights))


def _text(generator: np.random.Generator,
          shape: tuple[int, int]) -> np.ndarray:
  """Returns words as often as in a text: the nth most frequent, 1/n times."""
  often = 1 / np.arange(1, _WORDS + 1)
  return generator.choice(_WORDS, shape, p=often / often.sum())


def _embedding(weights: Iterator[tf.Tensor], words: tf.Tensor) -> tf.Tensor:
  values = tf.reduce_mean(tf.nn.embedding_lookup(next(weights), words), 1)
  for _ in _HIDDEN:
    values = tf.nn.relu(tf.matmul(values, next(weights)))
  return tf.matmul(values, next(weights))


NETS = {
    "resnet50": Net(
        tuple(_resnet_shapes()), _resnet,
        lambda generator, count: generator.standard_normal(
            (count, *_IMAGE)).astype(np.float32), _CLASSES),
    "embedding": Net(
        ((_WORDS, _WIDTH), *zip((_WIDTH, *_HIDDEN), (*_HIDDEN, _CLASSES),
                                strict=True)), _embedding,
        lambda generator, count: _text(generator, (count, _LENGTH)), _CLASSES),
}
