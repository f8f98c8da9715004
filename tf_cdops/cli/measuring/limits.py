"""Ends a program that waits for ever; TensorFlow can't cancel a step."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

EXIT_CODE = 3


@contextlib.contextmanager
def limit(seconds: float, what: str) -> Iterator[None]:
  """Ends the process, saying why, unless the block ends in time."""

  def end() -> None:
    print(f"tf_cdops: {what} has not ended after {seconds:g} s, and TensorFlow "
          "can't cancel it. Ending the program.", file=sys.stderr, flush=True)
    os._exit(EXIT_CODE)

  timer = threading.Timer(seconds, end)
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()
