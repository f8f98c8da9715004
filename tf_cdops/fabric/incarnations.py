"""Refuses collective ops among workers of which only some were restarted.

A worker remembers each device that it met in a collective op, and refuses one
that comes back after a restart, for as long as the worker runs. What TensorFlow
says of it reaches the user late, if the worker survives it at all.
"""

from collections.abc import Mapping, Sequence

from tf_cdops.base import device_names
from tf_cdops.base import errors

# The devices that collective ops have met, and which incarnations of them.
_met: dict[str, int] = {}


def check(places: Sequence[str], incarnations: Mapping[str, int]) -> None:
  """Raises if the devices' workers can't have a collective op together.

  Args:
    places: the devices that are to take part.
    incarnations: a number for each device there is, another after a restart.
  """
  workers = {place: device_names.parse(place).worker for place in places}
  met = [place for place in places if place in _met]
  again = {workers[place] for place in met
           if incarnations.get(place) != _met[place]}
  still = {workers[place] for place in met} - again
  if again and still:
    raise errors.ClusterError(
        f"{_tasks(again)} was started again and {_tasks(still)} wasn't: "
        "TensorFlow's collective ops can't join them. Start all workers again, "
        "or use another algorithm than 'collective', such as 'xring'.")
  _met.update({place: incarnations[place] for place in places
               if place in incarnations})


def _tasks(workers: set[tuple[str | None, int, int]]) -> str:
  return ", ".join(f"/job:{job}/task:{task}"
                   for job, _, task in sorted(workers, key=str))
