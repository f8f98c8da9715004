"""Says which worker is silent when a program ends with an error.

TensorFlow's error names a worker that died. That the first is stopped, by
which all others know of each other, it doesn't say.
"""

import sys
from types import TracebackType

import tensorflow as tf

from tf_cdops.cluster import addresses
from tf_cdops.cluster import probing

_PROBE_SECONDS = 3.0
_TELLING = (tf.errors.UnavailableError, tf.errors.AbortedError,
            tf.errors.CancelledError, tf.errors.DeadlineExceededError,
            tf.errors.InternalError, tf.errors.UnknownError)


def name_at_exit(tasks: tuple[addresses.Task, ...]) -> None:
  """Adds to what Python prints of an error that nobody caught."""
  before = sys.excepthook

  def say(kind: type[BaseException], error: BaseException,
          traceback: TracebackType | None) -> None:
    before(kind, error, traceback)
    if issubclass(kind, _TELLING):
      for task, why in probing.silent(tasks, _PROBE_SECONDS).items():
        print(f"tf_cdops: {task} {why}: it has ended or is stopped, which may "
              "be the cause.", file=sys.stderr, flush=True)

  sys.excepthook = say
