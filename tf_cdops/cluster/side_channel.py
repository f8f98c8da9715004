"""Numbers that each program tells the others, beside TensorFlow.

A program that is stuck, in its input say, answers nothing by TensorFlow's own
means; a thread of its own still does.
"""

import json
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent import futures

from tf_cdops.cluster import addresses

THREAD_NAME = "tf_cdops side channel"
_MOST_BYTES = 100
_ANSWER_SECONDS = 2.0


class SideChannel:
  """Answers whoever connects with numbers, until it is closed."""

  def __init__(self, host: str, numbers: Callable[[], Sequence[int]]):
    """Starts to listen, on a port that the system chooses.

    Args:
      host: the address by which others know this program.
      numbers: what to answer with.
    """
    self._numbers = numbers
    self._socket = _listening(host)
    self.port: int = self._socket.getsockname()[1]
    threading.Thread(target=self._serve, daemon=True,
                     name=THREAD_NAME).start()

  def close(self) -> None:
    self._socket.close()

  def _serve(self) -> None:
    while True:
      try:
        connection, _ = self._socket.accept()
      except OSError:  # Closed.
        return
      try:
        with connection:
          connection.settimeout(_ANSWER_SECONDS)
          connection.sendall(json.dumps(self._numbers()).encode() + b"\n")
      except OSError:
        pass  # Whoever asked has gone.


def ask(places: Sequence[tuple[str, int]],
        timeout: float) -> list[list[int] | None]:
  """Returns each one's numbers; None of those who don't answer in time."""
  if not places:
    return []
  with futures.ThreadPoolExecutor(len(places)) as pool:
    return list(pool.map(lambda place: _asked(place, timeout), places))


def _asked(place: tuple[str, int], timeout: float) -> list[int] | None:
  try:
    with socket.create_connection(place, timeout=timeout) as connection:
      answer = json.loads(connection.makefile("rb").readline(_MOST_BYTES))
  except (OSError, ValueError):
    return None
  return answer if isinstance(answer, list) else None


def _listening(host: str) -> socket.socket:
  """Listens where others look for this program, or else on all interfaces."""
  for candidate in (host, ""):
    try:
      family = socket.getaddrinfo(candidate or None, 0, type=socket.SOCK_STREAM,
                                  flags=socket.AI_PASSIVE)[0][0]
      return socket.create_server((candidate, 0), family=family, backlog=128)
    except OSError as error:  # A name of a proxy's, for instance.
      failed = error
  raise failed


def host_of(task: addresses.Task) -> str:
  return addresses.split_address(task.address)[0]
