"""The doctor's other process: tries algorithms and reports on each at once.

It prints one JSON object a line: {"facts": …}, then {"trying": name} and
{"trial": …} for each algorithm, then {"end": true}. Where there are workers, it
measures the links first: {"links": …} comes before that trial. `trial_process`
reads it.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import platform
import sys
import time
from typing import TYPE_CHECKING, Any

from tf_cdops.base import errors
from tf_cdops.base import version
from tf_cdops.cli import loads
from tf_cdops.cli import output
from tf_cdops.cli import quiet_start
from tf_cdops.cli import site_flags
from tf_cdops.cli import tf_config
from tf_cdops.cli import trial_process
from tf_cdops.cluster import cables

if TYPE_CHECKING:
  from tf_cdops import registry
  from tf_cdops.cli.measuring import sites

# Lengths that no number of devices divides, and one that is less than it.
_SIZES = "1x4004,1x4"
_EXTRAS = {"matplotlib": ("plot", "bench --plot"),
           "sklearn": ("demo", "the demo")}


def main() -> None:
  sys.meta_path.insert(0, quiet_start.QuietLoading())
  parser = argparse.ArgumentParser()
  site_flags.add_arguments(parser)
  parser.add_argument("--skip", default="")
  args = parser.parse_args()
  # Strategies read it too, and a malformed one would fail every algorithm.
  config = os.environ.pop("TF_CONFIG", "")
  try:
    with site_flags.opened(args) as site:
      found = tf_config.examine({"TF_CONFIG": config})
      _report(facts={"site": str(site), "tf_config": found.to_dict(),
                     "rows": _facts() | {"TF_CONFIG": found.detail}})
      skip = args.skip.split(",")
      if (args.cluster or args.workers) and trial_process.LINKS not in skip:
        _report(trying=trial_process.LINKS)
        _report(trial=_measure_links(site).to_dict())
      _try_all(site, skip)
  except (errors.Error, errors.ClusterError) as error:
    _report(refused=str(error),
            unreachable=isinstance(error, errors.ClusterError))
  _report(end=True)


def _measure_links(site: "sites.Site") -> trial_process.Trial:
  """Reports the links, if there are any; returns how that went."""
  from tf_cdops.cli.measuring import links
  name = trial_process.LINKS
  try:
    started = time.perf_counter()
    measured = links.measure(site)
    seconds = time.perf_counter() - started
  except Exception as error:  # TensorFlow's own, of a worker that is lost.
    return _failed(name, error)
  if not measured:
    return trial_process.Trial(name, trial_process.CANT,
                               "one device has none; give several workers")
  _report(links=[dataclasses.asdict(link) for link in measured])
  return trial_process.Trial(name, trial_process.WORKS,
                             f"measured within {seconds:.1f} s")


def _try_all(site: "sites.Site", skip: list[str]) -> None:
  from tf_cdops import registry
  for algorithm in registry.all_reduce_algorithms():
    if algorithm.name not in skip:
      _report(trying=algorithm.name)
      _report(trial=_try(algorithm, site).to_dict())


def _try(algorithm: "registry.Algorithm",
         site: "sites.Site") -> trial_process.Trial:
  """Sums two tensors by one algorithm, and compares with the exact sums."""
  from tf_cdops.cli.measuring import contenders
  from tf_cdops.cli.measuring import exact_inputs
  from tf_cdops.cli.measuring import steps
  from tf_cdops.execution import executor
  from tf_cdops.registry import requirements
  name = algorithm.name
  reason = requirements.unmet(algorithm, site.topology, executor.machine())
  if reason:
    return trial_process.Trial(name, trial_process.CANT, reason)
  try:
    started = time.perf_counter()
    inputs = exact_inputs.make(site, loads.parse_sizes(_SIZES).sizes)
    step = steps.build(contenders.of_spec(name), inputs)
    wrong = steps.count_wrong(step, inputs)
    seconds = time.perf_counter() - started
  except Exception as error:  # A registered algorithm may raise anything.
    return _failed(name, error)
  if wrong:
    return trial_process.Trial(
        name, trial_process.WRONG, f"{wrong} elements aren't the exact sum; "
        "don't use it here, and report it")
  return trial_process.Trial(name, trial_process.WORKS,
                             f"exact, within {seconds:.1f} s")


def _failed(name: str, error: Exception) -> trial_process.Trial:
  return trial_process.Trial(name, trial_process.FAILED,
                             f"{type(error).__name__}: {output.brief(error)}")


def _facts() -> dict[str, str]:
  """Returns what there is to know beside the algorithms, by label."""
  import tensorflow as tf
  from tf_cdops.base import tf_compat
  from tf_cdops.execution import devices
  build = tf.sysconfig.get_build_info()
  cuda = (f"CUDA {build.get('cuda_version', '?')}"
          if build.get("is_cuda_build") else
          "no CUDA (for GPUs: pip install 'tf-cdops[and-cuda]')")
  physical = tf.config.list_physical_devices()
  logical = tf.config.list_logical_devices()
  nccl = tf_compat.has_kernel("NcclAllReduce", "GPU")
  return {
      "tf_cdops": version.__version__,
      "Python": f"{platform.python_version()} on {platform.platform()}",
      "TensorFlow": f"{tf.__version__}, {cuda}",
      "physical devices": _count(physical),
      "logical devices": _count(logical),
      "virtual GPUs": "yes: nccl can't use them"
                      if devices.has_virtual_gpus() else "none",
      "NCCL kernel": "yes" if nccl else
                     "none: 'auto' uses ps, which needs none",
      **{name: _extra(name) for name in _EXTRAS},
      "cables": _cables(),
  }


def _count(found: list[Any]) -> str:
  kinds = [device.device_type for device in found]
  return ", ".join(f"{kinds.count(kind)} {kind}" for kind in
                   dict.fromkeys(kinds))


def _extra(name: str) -> str:
  extra, user = _EXTRAS[name]
  if importlib.util.find_spec(name):
    return f"yes, for {user}"
  return f"none: {user} needs it (pip install 'tf-cdops[{extra}]')"


def _cables() -> str:
  try:
    cables.check_programs()
  except errors.ClusterError as error:
    return f"none: {error}"
  return "yes, for --bandwidth"


def _report(**event: Any) -> None:
  print(json.dumps(event), flush=True)


if __name__ == "__main__":
  main()
