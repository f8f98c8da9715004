"""Workers that start at once: they answer as TensorFlow servers, no more."""

import pathlib
import sys
import time
from collections.abc import Callable

_BOUND = 30.0  # Seconds; what is waited for takes a few on a busy machine.

# Answers as a TensorFlow server does, and ends with its standard input.
PROGRAM = f"#!{sys.executable} -S" """
import os, socket, sys, threading
flags = dict(a.lstrip("-").split("=", 1) for a in sys.argv if "=" in a)
address = flags["cluster"].split(",")[int(flags["task"])].split(":")
def end():
  sys.stdin.read()
  os._exit(0)
threading.Thread(target=end, daemon=True).start()
listening = socket.create_server((address[0], int(address[1])))
while True:
  connection, _ = listening.accept()
  connection.recv(100)
  connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
  connection.close()
"""


def alive(pid: int) -> bool:
  """Whether a process runs; one that only waits to be reaped doesn't."""
  try:
    status = pathlib.Path(f"/proc/{pid}/stat").read_text()
  except (FileNotFoundError, ProcessLookupError):
    return False
  return status.rpartition(")")[2].split()[0] not in "ZX"


def wait_until(condition: Callable[[], bool]) -> bool:
  """Polls, since nobody tells of the end of another's child."""
  deadline = time.monotonic() + _BOUND
  while not condition():
    if time.monotonic() > deadline:
      return False
    time.sleep(0.05)
  return True
