"""Functions of vectors that are traced once, however often graphs use them.

A batch has thousands of messages. What a codec does to each is a dozen ops and
a branch, which take TensorFlow many milliseconds to build and to optimize; a
call of what has been built is one op. It stays one: with all bodies in its
place, a graph of 8 workers takes six times as long to start, and is no quicker.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

_Body = Callable[[tf.Tensor], tf.Tensor]


def traced_once(body: _Body) -> _Body:
  """Returns a function of one vector that adds one op to a tf.function.

  Eager code runs the body's ops at once, and a v1 graph gets them: there, a
  call would only add to them.

  Args:
    body: takes a vector of any length, and captures nothing.
  """
  function = tf.function(body, autograph=False,
                         experimental_attributes={"_noinline": True})

  @functools.wraps(body)
  def call(vector: tf.Tensor) -> tf.Tensor:
    if (tf.executing_eagerly()
        or not tf.compat.v1.executing_eagerly_outside_functions()):
      return body(vector)
    # Where it is called is the call's own matter.
    with tf.init_scope(), tf.device(None):
      traced = function.get_concrete_function(
          tf.TensorSpec([None], vector.dtype))
    return traced(vector)

  return call
