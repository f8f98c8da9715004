"""How many ops a worker runs at once: more than it has cores.

An op that computes keeps one of TensorFlow's threads to itself, of which there
is one for each core by default. The next op of an all-reduce waits behind such
ops, and the cable is idle: benchmarks/OVERLAP.md says for how long.
"""

import os

_VARIABLE = "TF_NUM_INTEROP_THREADS"  # TensorFlow's own, which goes before.
_MORE = 6


def count() -> int:
  """Returns how many threads to ask TensorFlow for; 0 for its own choice."""
  if _VARIABLE in os.environ:
    return 0
  return (os.cpu_count() or 1) + _MORE
