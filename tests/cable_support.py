"""Whether a LocalCluster can have cables on this machine."""

import functools

from tests import python_process


@functools.cache
def why_not() -> str | None:
  """Returns why there can be no cables here; None if there can."""
  done = python_process.run_script("""\
      from tf_cdops.base import errors
      from tf_cdops.cluster import cables
      try:
        cables.enter_network(shaped=True)
        cables.Cables(1, 1e6).remove()
      except errors.ClusterError as error:
        print(error)
      """)
  assert done.returncode == 0, done.stderr
  return done.stdout.strip() or None
