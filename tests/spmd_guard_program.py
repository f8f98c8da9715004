"""What each worker runs in the tests of SpmdStrategy's guard.

    tf_cdops launch --workers=2 tests/spmd_guard_program.py FOLDER PART
"""

import math
import sys

import numpy as np
import tensorflow as tf

from tests import spmd_program


def drop(folder: str) -> None:
  """Replica 1's tensor is left out, whoever has it; then all are."""
  program = spmd_program.Program(folder, on_nonfinite="drop")
  strategy, count = program.strategy, program.replicas
  strategy.name_tensors([tf.Variable(tf.zeros([2, 3]), name="kernel"),
                         tf.Variable(0.0, name="bias")])

  def reduce(op, kernel, bias):
    slices = tf.IndexedSlices(kernel, tf.constant([0, 2]),
                              tf.constant([4, 3]))
    context = tf.distribute.get_replica_context()
    return context.all_reduce(op, [kernel, bias]), context.all_reduce(
        op, slices)

  def run(op, spoilt, eager):
    kernels = [np.full([2, 3], r + 1.0, "float32") for r in range(count)]
    for replica in spoilt:
      kernels[replica][1, 2] = math.nan
    inputs = (program.distributed(kernels),
              program.distributed([np.float32(r) for r in range(count)]))
    step = lambda: strategy.run(reduce, (op, *inputs))
    (kernel, bias), slices = (step if eager else tf.function(step))()
    return [program.local(kernel), program.local(bias),
            strategy.experimental_local_results(slices)]

  total = count * (count + 1) / 2
  for eager in (False, True):
    for op, scale in (("SUM", 1.0), ("MEAN", 1 / count)):
      kernels, biases, _ = run(op, [], eager)
      for kernel, bias in zip(kernels, biases, strict=True):
        np.testing.assert_allclose(kernel, np.full([2, 3], total * scale))
        np.testing.assert_allclose(bias, (total - count) * scale)
      kernels, biases, all_slices = run(op, [1], eager)
      left = (total - 2) * count / (count - 1) * scale
      for kernel, bias, slices in zip(kernels, biases, all_slices,
                                      strict=True):
        np.testing.assert_allclose(kernel, np.full([2, 3], left), rtol=1e-6)
        np.testing.assert_allclose(bias, (total - count) * scale)
        dense = np.zeros([4, 3])
        dense[[0, 2]] = left
        np.testing.assert_allclose(tf.convert_to_tensor(slices), dense,
                                   rtol=1e-6)
  try:
    run("SUM", range(count), False)
  except tf.errors.InvalidArgumentError as error:
    program.write(error=str(error))


if __name__ == "__main__":
  _, _folder, _part = sys.argv
  globals()[_part](_folder)
