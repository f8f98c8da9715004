"""absl flags that describe a cross-device ops object, and build it.

    flags.DEFINE_...                     # a program's own flags
    tf_cdops.flags.define_flags()        # before app.run; never on import
    ...
    ops = tf_cdops.flags.cross_device_ops_from_flags()
"""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from absl import flags as absl_flags

from tf_cdops import cost
from tf_cdops import cross_device_ops
from tf_cdops import registry
from tf_cdops.base import device_names
from tf_cdops.base import errors
from tf_cdops.cost import given as given_links
from tf_cdops.execution import nonfinite
from tf_cdops.planning import planner
from tf_cdops.planning import spec as spec_lib

_CHOICES = ("auto", "multi_worker", "nccl", "one_device")
# Which other flags each choice heeds; giving another one is a mistake.
_PACKING = ("num_packs", "agg_small_grads_max_bytes",
            "agg_small_grads_max_group")
# Those that say how to pack, whatever a spec's file says.
_REPLACE_PACKING = {"num_packs", "agg_small_grads_max_bytes"}
_HEEDS = {
    "auto": ("all_reduce_spec", "worker_devices", "num_gpus_per_worker",
             "network", "wire", "wire_scope", "on_nonfinite",
             "backward_seconds", *_PACKING),
    "multi_worker": ("all_reduce_spec", "worker_devices",
                     "num_gpus_per_worker", "network", "wire", "wire_scope",
                     "on_nonfinite", "backward_seconds", *_PACKING),
    "nccl": ("num_packs", "on_nonfinite"),
    "one_device": ("reduce_to_device",),
}
_ALL = sorted({name for names in _HEEDS.values() for name in names})


class _Parser(absl_flags.ArgumentParser):
  """Parses a flag with a function whose ValueErrors users can read."""

  def __init__(self, parse: Callable[[str], Any], kind: str,
               syntactic_help: str):
    super().__init__()
    self._parse = parse
    self._kind = kind
    self.syntactic_help = syntactic_help

  def parse(self, argument: Any) -> Any:
    return self._parse(argument) if isinstance(argument, str) else argument

  def flag_type(self) -> str:
    return self._kind


class _Serializer(absl_flags.ArgumentSerializer):
  """Writes a value so that its parser reads it again."""

  def serialize(self, value: Any) -> str:
    if isinstance(value, spec_lib.AllReduceSpec) and (
        value.packing or value.network or value.plans):
      return f"@{value.file}"  # The text alone would lose them.
    return ",".join(value) if type(value) is tuple else str(value)


def define_flags(
    flag_values: absl_flags.FlagValues = absl_flags.FLAGS) -> None:
  """Defines --cross_device_ops, --all_reduce_spec and the rest.

  Args:
    flag_values: where to define them.
  """

  def define(name: str, parse: Callable[[str], Any], kind: str, syntax: str,
             text: str) -> None:
    absl_flags.DEFINE(_Parser(parse, kind, syntax), name, None, text,
                      flag_values, _Serializer())

  absl_flags.DEFINE_enum(
      "cross_device_ops", "auto", _CHOICES,
      "How values are reduced: 'auto' and 'multi_worker' by --all_reduce_spec, "
      "'nccl' by NCCL, 'one_device' on one device (slow and sure: compare with "
      "it when results look wrong).", flag_values)
  define("all_reduce_spec", planner.parse_all_reduce_spec, "spec",
         spec_lib.FORM,
         "Which algorithm, in how many shards, for tensors of up to how many "
         "bytes; 'auto' chooses, '@file.json' reads a file, with its packing, "
         "links and plans: flags that say how to pack, and --network, go "
         "before the first two. Default: 'auto' for "
         "--cross_device_ops=auto, else pscpu/pscpu#2.")
  define("num_packs", _whole("num_packs"), "packs",
         "a whole number of at least 0",
         "Join tensors into that many packs; 0 for none.")
  define("agg_small_grads_max_bytes",
         lambda text: spec_lib.parse_bytes(text, "agg_small_grads_max_bytes"),
         "bytes", "a number of bytes, such as 512, 64k or 1m",
         "Where nothing is said of --num_packs, join tensors up to this size.")
  define("agg_small_grads_max_group", _whole("agg_small_grads_max_group"),
         "tensors", "a whole number of at least 0",
         "Join at most this many small tensors; 0 for none.")
  define("reduce_to_device", lambda text: _device(text, "reduce_to_device"),
         "device", "a device name, such as /gpu:0",
         "For --cross_device_ops=one_device: where to sum.")
  define("worker_devices",
         lambda text: tuple(_device(name.strip(), "worker_devices")
                            for name in text.split(",")),
         "devices", "a comma-separated list of device names",
         "The workers that take part, such as "
         "/job:worker/task:0,/job:worker/task:1. Default: the values'.")
  define("num_gpus_per_worker", _whole("num_gpus_per_worker"), "GPUs",
         "a whole number of at least 0",
         "GPUs of each worker. Default: as many as the values are on.")
  define("network", _network, "link",
         "the name of a link, such as 10gbe, or @links.json",
         "The link between workers, by which 'auto' chooses: "
         f"{', '.join(cost.PRESETS)}; '@links.json' as `tf_cdops doctor` "
         "measures it. Default: what is common.")
  define("wire", _wire, "codec",
         "the name of a codec, such as bfloat16",
         "How messages between workers are made smaller. Default: not at all.")
  define("wire_scope", _scope, "scope",
         "'across' or 'all'",
         "'all' encodes messages between devices of one worker, too.")
  define("on_nonfinite", nonfinite.check_mode, "action", "'raise' or 'drop'",
         "What becomes of a NaN or an infinity on a replica: 'raise' an error "
         "that names replica and tensor, or 'drop' that tensor from the sum "
         "and log it. Default: it isn't looked for.")
  define("backward_seconds", _seconds, "seconds", "a number of seconds",
         "How long the backward pass takes, by which 'auto' cuts packs between "
         "workers. Default: about as long as the all-reduce.")
  for name in ("cross_device_ops", *_ALL):  # So that --help shows them.
    flag_values.register_key_flag_for_module(sys.argv[0], flag_values[name])


def cross_device_ops_from_flags(
    flag_values: absl_flags.FlagValues = absl_flags.FLAGS) -> Any:
  """Returns the object that the flags describe.

  Args:
    flag_values: where `define_flags` defined them.

  Returns:
    A tf.distribute.CrossDeviceOps.

  Raises:
    ValueError: if a flag is given that the choice doesn't heed.
  """
  choice = str(flag_values["cross_device_ops"].value)
  given = {}
  for name in _ALL:
    value = flag_values[name].value
    if value is None:
      continue
    if name not in _HEEDS[choice]:
      heeding = [c for c in _CHOICES if name in _HEEDS[c]]
      raise errors.InputError(
          f"`--{name}` ({value}) has no meaning with --cross_device_ops="
          f"{choice}; leave it out, or use --cross_device_ops="
          f"{' or '.join(heeding)}.")
    given[name] = value
  if choice == "one_device":
    return cross_device_ops.ReductionToOneDevice(**given)
  if choice == "nccl":
    return cross_device_ops.NcclAllReduce(**given)
  if choice == "auto":
    given.setdefault("all_reduce_spec", "auto")
  if "all_reduce_spec" in given and given.keys() & _REPLACE_PACKING:
    # Of 0, too, which the class couldn't tell from its default.
    given["all_reduce_spec"] = planner.parse_all_reduce_spec(
        given["all_reduce_spec"]).without_packing()
  return cross_device_ops.MultiWorkerAllReduce(**given)


def _whole(name: str) -> Callable[[str], int]:
  return lambda text: errors.check_whole_number(
      f"--{name}", int(text) if text.strip().isdecimal() else text, 0)


def _seconds(text: str) -> float | None:
  value: Any = text
  with contextlib.suppress(ValueError):
    value = float(text)
  return errors.check_seconds("--backward_seconds", value)


def _network(text: str) -> str:
  given_links.check(text, "--network")
  return text


def _wire(text: str, scope: str = "across") -> str:
  registry.check_wire(text, scope)
  return text


def _scope(text: str) -> str:
  _wire("bfloat16", text)
  return text


def _device(text: str, name: str) -> str:
  device_names.parse(text, name)
  return text
