"""Loads what others' packages register, by their entry points."""

import importlib.metadata

from absl import logging


def load(group: str, what: str) -> None:
  """Loads all entry points of a group; `what` is what they register."""
  for entry_point in importlib.metadata.entry_points(group=group):
    try:
      entry_point.load()
    except Exception as error:  # A plugin may raise anything.
      logging.warning(
          "The %s of %r (%s) can't be loaded and are left out: %s: %s", what,
          entry_point.name, entry_point.value, type(error).__name__, error)
