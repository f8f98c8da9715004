"""Ends a program whose step takes too long, and says whose fault that is."""

from collections.abc import Sequence

from tf_cdops.cluster import addresses
from tf_cdops.cluster import blaming
from tf_cdops.cluster import progress
from tf_cdops.cluster import side_channel
from tf_cdops.cluster import step_timeout

_ASK_SECONDS = 5.0


class SpmdWatch:
  """One program's limit; programs tell each other how far they are.

  Attributes:
    on_call: to be called when a function with all-reduces is.
    on_arrival: emits what counts an all-reduce that has begun.
  """

  def __init__(self, seconds: float, tasks: Sequence[addresses.Task]):
    """Initializes.

    Args:
      seconds: how long a call may take.
      tasks: all programs.
    """
    self._timeout = step_timeout.StepTimeout(seconds, self._who_is_late)
    self._progress = progress.Progress()
    self._tasks = tuple(tasks)
    self._places: list[tuple[str, int]] = []
    self.on_call = self._timeout.enter
    self.on_arrival = self._progress.note

  def listen(self, own: addresses.Task) -> int:
    """Begins to tell whoever asks how far this program is; returns the port."""
    return side_channel.SideChannel(
        side_channel.host_of(own),
        lambda: (self._timeout.count, *self._progress.numbers)).port

  def ask_at(self, ports: Sequence[int]) -> None:
    """Takes the ports of all programs."""
    self._places = [(side_channel.host_of(task), port)
                    for task, port in zip(self._tasks, ports, strict=True)]

  def _who_is_late(self, number: int) -> str:
    return blaming.who_is_late(
        number, self._tasks, side_channel.ask(self._places, _ASK_SECONDS))
