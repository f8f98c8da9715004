"""Says in words which program keeps a step of all others waiting: pure."""

from collections.abc import Sequence

from tf_cdops.cluster import addresses


def who_is_late(number: int, tasks: Sequence[addresses.Task],
                told: Sequence[Sequence[int] | None]) -> str:
  """Names those who haven't come as far in a call as others have.

  Args:
    number: of the call, counted from 1.
    tasks: all programs.
    told: what each has told: the calls that it has made, the all-reduces that
      it has come to, and a number for their shapes; None of one that is silent.
  """
  most = max((one[1] for one in told if one is not None), default=0)
  # Whose shapes others are compared with: the first of those who are there.
  first = next(((task, one[2]) for task, one in zip(tasks, told, strict=True)
                if one is not None and one[1] == most), None)
  blamed = []
  for task, one in zip(tasks, told, strict=True):
    if one is None:
      blamed.append(f"{task} does not answer")
    elif one[0] < number:
      blamed.append(f"{task} has not entered it (it has made {one[0]} calls "
                    f"of {number})")
    elif one[1] < most:
      blamed.append(f"{task} has entered it, but has not come to its "
                    "all-reduce, as others have; it may wait for its input")
    elif first and one[2] != first[1]:
      blamed.append(f"{task} has come to an all-reduce of other shapes than "
                    f"{first[0]}, which must be the same in all programs")
  return "; ".join(blamed) or (
      "all workers have come to its all-reduce, so it may only be slow")
