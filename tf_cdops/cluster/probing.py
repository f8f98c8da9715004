"""Asks tasks whether they answer, with a limit on the wait.

TensorFlow connects to dead addresses without a word and then blocks for
minutes, and a stopped process still accepts connections. So a task is asked
for the first thing any gRPC server sends: its HTTP/2 settings.
"""

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures

from tf_cdops.base import errors
from tf_cdops.cluster import addresses

# The client's half of an HTTP/2 connection's start: preface, empty settings.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS_FRAME = 4
_PAUSE = 0.1


def answers(task: addresses.Task, timeout: float) -> str | None:
  """Returns why a task doesn't answer within `timeout`; None if it does."""
  try:
    with socket.create_connection(addresses.split_address(task.address),
                                  timeout=timeout) as connection:
      connection.sendall(_HELLO)
      reply = connection.recv(9)
  except TimeoutError:
    return "does not answer"
  except (OSError, UnicodeError) as error:  # Unicode: a malformed host name.
    why = getattr(error, "strerror", None) or error
    return f"can't be reached ({why})"
  if len(reply) < 4 or reply[3] != _SETTINGS_FRAME:
    return "is no TensorFlow server"
  return None


def silent(tasks: Iterable[addresses.Task],
           timeout: float) -> dict[addresses.Task, str]:
  """Returns the tasks that don't answer, each with the reason."""
  tasks = list(tasks)
  if not tasks:
    return {}
  with futures.ThreadPoolExecutor(len(tasks)) as pool:  # One limit for all.
    reasons = dict(zip(tasks, pool.map(lambda t: answers(t, timeout), tasks),
                       strict=True))
  return {task: reason for task, reason in reasons.items() if reason}


def wait(tasks: Sequence[addresses.Task], timeout: float,
         give_up: Callable[[], None] = lambda: None) -> None:
  """Waits until all tasks answer.

  Args:
    tasks: whom to wait for.
    timeout: seconds for all of them together.
    give_up: called between attempts; may raise to end the wait early.

  Raises:
    ClusterError: naming the tasks that don't answer in time, and why.
  """
  deadline = time.monotonic() + timeout
  missing = dict.fromkeys(tasks, "was not asked")
  while missing:
    left = deadline - time.monotonic()
    if left <= 0:
      reasons = "; ".join(f"{task} {why}" for task, why in missing.items())
      raise errors.ClusterError(
          f"after {timeout:g} s: {reasons}. Start it with `python -m tf_cdops "
          "worker`, or mend its address, or wait longer.")
    missing = silent(missing, min(max(left, _PAUSE), 5.0))
    if missing:
      give_up()
      time.sleep(min(_PAUSE, max(left, 0)))
