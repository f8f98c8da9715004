"""The child's side: answers requests, one JSON object a line.

Of the standard library alone: a Python with no TensorFlow can use it too.
"""

import ctypes
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any


def serve(handlers: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
  """Answers until standard input closes, as it does when the parent ends.

  A request {"do": name, …} calls the handler of that name with the rest.

  Args:
    handlers: what to call; each returns the answer.
  """
  # Libraries print to standard output; answers go where only they can be.
  answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)
  for line in sys.stdin:
    request = json.loads(line)
    try:
      answer = handlers[request.pop("do")](**request)
    except Exception as error:  # The parent decides what it means.
      traceback.print_exc()
      answer = {"type": type(error).__name__,
                "error": str(error) or "no message"}
    print(json.dumps(answer), file=answers, flush=True)
  os._exit(0)  # Some libraries wait for their peers on the way out.


def return_memory() -> None:
  """Returns freed memory to the system, where the C library can.

  Other processes of the machine will want it.
  """
  trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
  if trim is not None:
    trim(0)
