"""Gives faults to training at one site, and looks whether they are named.

    python tests/guard_program.py FOLDER SITE CASES

SITE is "local" (one worker of three devices), "client" and a number of workers
that this program drives, or "spmd", where it is one of the programs. CASES are
JSON: lists of a number, a mode and a kind. What is wrong with each is written
into FOLDER, one file a program; nothing if all is right.
"""

import json
import math
import pathlib
import random
import sys

from tf_cdops.cluster import isolation

if any(argument.startswith("client") for argument in sys.argv):
  isolation.enter_private_network()  # Before TensorFlow has any thread.

import tensorflow as tf

import tf_cdops
from tests import guard_model

_KINDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def run(strategy, cases, done) -> None:
  """Runs cases, and calls done(number, what is wrong) after each."""
  models = {}
  for number, mode, kind in cases:
    if mode not in models:
      models[mode] = guard_model.make(strategy, mode)
      guard_model.fit(strategy, models[mode], [tf_cdops.keras.NameGradients()])
    chance = random.Random(number)
    if kind in _KINDS:
      wrong = guard_model.spoil_gradient(strategy, models[mode], chance,
                                         _KINDS[kind])
    else:
      wrong = guard_model.flip_bit(strategy, models[mode], chance, kind)
    done(number, wrong)


def main(folder: str, site: str, cases: str) -> None:
  """Runs the cases at the site."""
  tf.get_logger().setLevel("ERROR")
  results = {}
  path = pathlib.Path(folder)

  def done(number, wrong):
    results[number] = wrong
    rank = getattr(strategy.extended, "_id_in_cluster", 0)
    (path / f"{rank}.json").write_text(json.dumps(results))

  if site == "spmd":
    strategy = tf_cdops.SpmdStrategy(on_nonfinite="raise")
    run(strategy, json.loads(cases), done)
  elif site == "local":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 3)
    strategy = tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(3)],
        cross_device_ops=tf_cdops.MultiWorkerAllReduce(
            all_reduce_spec="auto", on_nonfinite="raise"))
    run(strategy, json.loads(cases), done)
  else:
    with tf_cdops.LocalCluster(int(site.removeprefix("client"))) as cluster:
      strategy = tf_cdops.multi_worker_strategy(
          cluster, tf_cdops.MultiWorkerAllReduce(
              all_reduce_spec="auto", on_nonfinite="raise"))
      run(strategy, json.loads(cases), done)


if __name__ == "__main__":
  main(*sys.argv[1:])
