"""A step of training a convolutional net, as one worker of several makes it."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# Output channels of 3x3 convolutions; where they double, images are halved.
# The last have most of the 19 MB, and the first most of the computing for
# their size, as in nets that people train.
_CHANNELS = (64, 64, 128, 128, 256, 256, 512, 512)
_IMAGE, _CLASSES = (32, 32, 3), 10
_RATE = 1e-3
# Parts of the largest gradient by which one may differ: convolutions of two
# processes add in another order.
_ROUNDING = 1e-4


class Training:
  """A net and one worker's images.

  One device a worker: its variables need not be mirrored.
  """

  def __init__(self, batch: int, workers: int, rank: int):
    self._data = [_images(batch, worker) for worker in range(workers)]
    self._rank = rank
    self._variables = [tf.Variable(value) for value in _weights()]

  def step(self) -> tf.Tensor:
    """Trains, with the mean of all workers' gradients."""
    return self._apply(self.mean_gradients())

  def step_alone(self) -> tf.Tensor:
    """Trains with this worker's own gradients: the computing alone."""
    return self._apply(self._gradients(self._rank))

  def mean_gradients(self) -> list[tf.Tensor]:
    return tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.MEAN, self._gradients(self._rank))

  def wrong(self, means: Sequence[tf.Tensor], error: float) -> int:
    """Returns how many elements aren't the mean of all workers' gradients.

    Each worker computes the gradients of all for it.

    Args:
      means: the gradients that came out.
      error: the part of the largest by which they may differ.
    """
    function = tf.function(self._gradients, autograph=False)
    each = [function(worker) for worker in range(len(self._data))]
    count = 0
    for found, *terms in zip(means, *each, strict=True):
      expected = np.mean([term.numpy() for term in terms], 0)
      bound = (2 * error + _ROUNDING) * np.max(np.abs(terms))
      count += int(np.count_nonzero(np.abs(found - expected) > bound))
    return count

  def _gradients(self, worker: int) -> list[tf.Tensor]:
    images, labels = self._data[worker]
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels, self._logits(tf.constant(images))))
    gradients: list[tf.Tensor] = tape.gradient(loss, self._variables)
    return gradients

  def _logits(self, images: tf.Tensor) -> tf.Tensor:
    *kernels, last = self._variables
    for kernel in kernels:
      inputs, outputs = kernel.shape[2:]
      stride = 2 if outputs == 2 * inputs else 1
      images = tf.nn.relu(tf.nn.conv2d(images, kernel, stride, "SAME"))
    return tf.matmul(tf.reduce_mean(images, (1, 2)), last)

  def _apply(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    done = [variable.assign_sub(_RATE * gradient) for variable, gradient in zip(
        self._variables, gradients, strict=True)]
    with tf.control_dependencies(done):
      return tf.constant(0)


def _weights() -> list[np.ndarray]:
  generator = np.random.default_rng(0)
  shapes = [(3, 3, inputs, outputs) for inputs, outputs in zip(
      (_IMAGE[-1], *_CHANNELS), _CHANNELS, strict=False)]
  return [(generator.standard_normal(shape)
           * np.sqrt(2 / np.prod(shape[:-1]))).astype(np.float32)
          for shape in [*shapes, (_CHANNELS[-1], _CLASSES)]]


def _images(batch: int, worker: int) -> tuple[np.ndarray, np.ndarray]:
  generator = np.random.default_rng(1 + worker)
  return (generator.standard_normal((batch, *_IMAGE)).astype(np.float32),
          generator.integers(0, _CLASSES, batch))
