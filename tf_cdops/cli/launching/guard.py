"""Two processes for the launcher, each of which outlives the other's death.

The one that the user started waits; its child does the work, in a session of
its own. If the first is killed, the child is told and ends the programs. If the
child is killed, the first adopts the programs and kills them.
"""

import contextlib
import ctypes
import os
import signal
import sys
from typing import Any

from tf_cdops.cli.launching import descendants

# What ends a launcher; each is passed on, unless it was ignored from the start,
# as `nohup` and a shell's background jobs have it.
SIGNALS = (signal.SIGINT, signal.SIGTERM, *(
    [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
# What tells the child that the one above it was killed.
ORPHANED = signal.SIGUSR1 if sys.platform == "linux" else signal.SIGTERM
_PR_SET_PDEATHSIG = 1
_MOST_SIGNALS = 3  # After so many, nobody waits for the child any more.


def divide() -> int | None:
  """Makes a child that goes on in this one's place; call it without threads.

  Returns:
    None, in the child. In the parent, when the child has ended, the exit code.
  """
  if sys.platform != "linux":  # There, programs end with their launcher's end.
    return None
  descendants.adopt_orphans()
  sys.stdout.flush()
  sys.stderr.flush()
  parent = os.getpid()
  signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
  child = os.fork()
  if child:
    return _wait_for(child)
  os.setsid()  # Ctrl-C, and what kills groups, is the parent's.
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ORPHANED)
  if os.getppid() != parent:
    os._exit(1)  # It has ended already.
  descendants.adopt_orphans()
  signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
  return None


def _wait_for(child: int) -> int:
  told = 0

  def pass_on(number: int, _: Any) -> None:
    nonlocal told
    told += 1
    if told < _MOST_SIGNALS:
      with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)
    else:
      descendants.kill_all()

  before = {number: signal.signal(number, pass_on) for number in SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN}
  signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
  try:
    try:
      code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # `kill_all` has waited for it.
      code = -signal.SIGKILL
  finally:
    descendants.kill_all()
    for number, handler in before.items():
      signal.signal(number, handler)
  return code if code >= 0 else 128 - code
