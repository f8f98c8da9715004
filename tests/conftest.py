"""Lets absltest's helpers work under pytest, and Ctrl-C in a background job.

Has the longest files run first, too.
"""

import os
import pathlib
import signal
from typing import Any

from absl import flags

# By their time, a quarter of a minute or more; lest one of them begin when all
# other processes are about to end. The others follow in the usual order.
_LONGEST = (
    "cluster/multi_worker_test.py",
    "cluster/spmd_fault_test.py",
    "cluster/spmd_by_hand_test.py",
    "cluster/spmd_test.py",
    "cluster/spmd_keras_test.py",
    "examples_test.py",
    "algorithms/algorithm_proof_test.py",
    "algorithms/algorithm_tensorflow_test.py",
    "cluster/local_cluster_test.py",
    "cluster/fault_test.py",
    "keras/accumulation_test.py",
    "keras/workers_test.py",
    "long_run_test.py",
    "cross_device_ops/keras_all_reduce_test.py",
    "cross_device_ops/keras_training_test.py",
    "cli/doctor_command_test.py",
    "cli/demo_test.py",
    "cli/bench_command_test.py",
    "cluster/watchdog_test.py",
    "cross_device_ops/class_contract_test.py",
    "cli/tune_command_test.py",
    "cli/launch_test.py",
    "cli/launch_tensorflow_test.py",
    "cross_device_ops/class_results_test.py",
    "benchmarks_test.py",
)
_FOLDER = pathlib.Path(__file__).parent

flags.FLAGS.mark_as_parsed()  # There is no absltest.main here.

# A shell has its background jobs, and all that these start, ignore Ctrl-C. Some
# tests send it to programs, and look at what those do.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)

# On some CPUs TensorFlow uses oneDNN, which says so on standard error and fails
# on a replica's empty batch (ReluGrad, with Keras alone too). As in .bazelrc.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"


def pytest_configure(config: Any) -> None:
  # pytest-xdist's own order is by the number of tests, which says little.
  config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[Any]) -> None:
  order = {_FOLDER / name: rank for rank, name in enumerate(_LONGEST)}
  items.sort(key=lambda item: order.get(item.path, len(order)))
