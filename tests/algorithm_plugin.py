"""A package with faulty algorithms, as a third party's would be installed."""

import pathlib

_MODULE = '''
import os, signal, threading
import tf_cdops

def register(name, act):
  @tf_cdops.register_all_reduce(name, description=f"Does: {name}.")
  def algorithm(fabric, values, group):
    act(values)
    return list(values)

def interrupt(values):
  if values[0].length > 5000:
    os.kill(os.getpid(), signal.SIGINT)

def fail(values):
  raise RuntimeError("some reason")

register("sums_nothing", lambda values: None)
register("is_interrupted", interrupt)
register("raises", fail)
register("crashes", lambda values: os._exit(77))
register("hangs", lambda values: threading.Event().wait())
'''


def install(directory: str) -> str:
  """Makes the package in a directory; returns what goes on Python's path."""
  root = pathlib.Path(directory)
  (root / "faulty_algorithms.py").write_text(_MODULE)
  info = root / "faulty_algorithms-1.0.dist-info"
  info.mkdir()
  (info / "METADATA").write_text(
      "Metadata-Version: 2.1\nName: faulty-algorithms\nVersion: 1.0\n")
  (info / "entry_points.txt").write_text(
      "[tf_cdops.algorithms]\nfaulty = faulty_algorithms\n")
  return directory
