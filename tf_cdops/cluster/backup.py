"""BackupAndRestore: programs that are started again go on from one epoch."""

import contextlib
import os
import pathlib
import re
import shutil
from typing import Any

from absl import logging
import tensorflow as tf

from tf_cdops.base import errors
from tf_cdops.cluster import spmd

_NAME = re.compile(r"epoch-(\d+)\.weights\.h5")
# A program may have died between its save and another's: then the one before
# is the newest that all have.
_KEPT = 2


class BackupAndRestore(tf.keras.callbacks.Callback):
  """Saves weights, the optimizer's too, after each epoch, in each program.

  As `tf.keras.callbacks.BackupAndRestore`, for programs of which each has its
  own worker. Keras' own would write the same file from all of them; with a
  folder for each, programs that died while they saved would go on from
  different epochs. This one goes on from the newest epoch that all have.

      model.fit(x, y, epochs=10, callbacks=[BackupAndRestore("backup")])
  """

  def __init__(self, backup_dir: str | os.PathLike[str],
               delete_checkpoint: bool = True):
    """Initializes.

    Args:
      backup_dir: a folder, shared or of each machine alone; every program has
        its own in it.
      delete_checkpoint: whether the files are removed when training ends well.
    """
    super().__init__()
    if not backup_dir:
      raise errors.InputError(
          f"`backup_dir` ({backup_dir!r}) must name a folder.")
    self._parent = pathlib.Path(backup_dir)
    self._delete = delete_checkpoint

  def on_train_begin(self, logs: Any = None) -> None:
    """Loads what all programs have, if there is such a thing."""
    mine = sorted(self._files())
    everyones = self._told_by_all(mine)
    common = set(mine).intersection(*everyones)
    if not common:
      if any(everyones):
        logging.warning(
            "BackupAndRestore: programs have no epoch in common, and begin "
            "anew; they have %s.", everyones)
      return
    epoch = max(common)
    optimizer = getattr(self.model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
      optimizer.build(self.model.trainable_variables)
    self.model.load_weights(self._files()[epoch])
    self.model._initial_epoch = epoch  # As Keras' own callback does.

  def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
    """Saves, in such a way that there is never half a file of that name."""
    self._folder.mkdir(parents=True, exist_ok=True)
    path = self._folder / f"epoch-{epoch + 1}.weights.h5"
    unfinished = self._folder / "unfinished.weights.h5"
    self.model.save_weights(unfinished, overwrite=True)
    unfinished.replace(path)
    files = self._files()
    for old in sorted(files)[:-_KEPT]:
      files[old].unlink()

  def on_train_end(self, logs: Any = None) -> None:
    """Removes the files, once no program needs those of others any more."""
    if not self._delete:
      return
    # Else one that died in its last save would begin anew, and all with it.
    self._told_by_all("done")
    shutil.rmtree(self._folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # It has other things, or has gone.
      self._parent.rmdir()

  def _told_by_all(self, mine: Any) -> list[Any]:
    strategy = self.model.distribute_strategy
    return (strategy.tell_others(mine)
            if isinstance(strategy, spmd.SpmdStrategy) else [mine])

  @property
  def _folder(self) -> pathlib.Path:
    context = self.model.distribute_strategy.extended
    return self._parent / f"worker-{getattr(context, '_id_in_cluster', 0)}"

  def _files(self) -> dict[int, pathlib.Path]:
    """Returns the files of this program, by the epochs that were done."""
    if not self._folder.is_dir():
      return {}
    found = ((path, _NAME.fullmatch(path.name))
             for path in self._folder.iterdir())
    return {int(match[1]): path for path, match in found if match}
