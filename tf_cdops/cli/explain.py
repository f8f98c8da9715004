"""Says what a spec will do: which tensors go how, why, and at what cost.

Nothing runs, and the devices needn't be here: --workers and --devices say
what to explain for. The report has the plan (which tensors travel together,
by which algorithm, and why), the bytes on links inside workers and between
them, a predicted time with the bound that nothing can beat, and the same
tensors by the other algorithms.

Times follow from the latency and the bandwidth of links: --inside and
--across choose them by name (nvlink, pcie, memory, loopback, 10gbe, 25gbe,
100gbe, infiniband), and --network=@links.json takes both as they were measured
by `tf_cdops doctor --cluster=… --out=links.json`. --latency and --bandwidth
replace the numbers of the link across if there are several workers, and of the
one inside otherwise.

A spec of a file (@file.json) is packed as the file says, unless flags say how,
and goes over the links that the file has, unless flags name others. If the file
has a plan for these tensors and workers, that is explained.

--spmd explains what SpmdStrategy does, where each worker runs the program: in
the model of collective ops, which TensorFlow runs out of sight.

--schedule shows one bucket's steps, --html writes a page with pictures, and
--plan=plan.json writes the plan: a run with --all_reduce_spec=@plan.json
follows it exactly, whatever else changes. Lines are as wide as the terminal, or
COLUMNS, has them, up to 100.
"""

import argparse
import dataclasses
import textwrap

from tf_cdops import explaining
from tf_cdops.base import errors
from tf_cdops.base import topology as topology_lib
from tf_cdops.cli import assumptions
from tf_cdops.cli import link_flags
from tf_cdops.cli import loads
from tf_cdops.cli import output
from tf_cdops.explaining import schedule
from tf_cdops.cli.page import writing
from tf_cdops.explaining import wording
from tf_cdops.planning import planner
from tf_cdops.planning import spec

NAME = "explain"
# Beyond these, a number was mistyped.
_MOST = {"workers": 4096, "devices": 1024, "num_packs": 1_000_000,
         "agg_small_grads_max_group": 1_000_000}
_MOST_REPLICAS = 65_536


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument("--all_reduce_spec", default="auto", metavar="SPEC",
                      help="what to explain (default: auto)")
  devices = parser.add_argument_group("on which devices")
  devices.add_argument("--workers", type=int, default=1, metavar="N",
                       help="how many workers (default: 1)")
  devices.add_argument("--devices", type=int, metavar="N",
                       help="devices of each (default: those that are here)")
  devices.add_argument("--device_type", choices=("GPU", "CPU"),
                       help="their kind (default: GPU with --devices, or "
                       "else what is here)")
  devices.add_argument("--spmd", action="store_true",
                       help="each worker runs a program of its own, with "
                       "tf_cdops.SpmdStrategy")
  loads.add_arguments(parser)
  packing = parser.add_argument_group("what is packed")
  packing.add_argument("--num_packs", type=int, metavar="N",
                       help="join tensors in that many packs (default: 0)")
  packing.add_argument("--bytes_per_pack", metavar="BYTES",
                       help="with --spmd, the most bytes of a pack")
  packing.add_argument("--backward_seconds", type=float, metavar="SECONDS",
                       help="how long the backward pass takes, in which "
                       "gradients appear: auto cuts packs for it")
  packing.add_argument("--agg_small_grads_max_bytes", metavar="BYTES",
                       help="join tensors up to this size")
  packing.add_argument("--agg_small_grads_max_group", type=int,
                       metavar="N",
                       help="at most this many, 0 for none (default: 10)")
  wire = parser.add_argument_group("how messages are encoded")
  wire.add_argument("--wire", metavar="CODEC",
                    help="bfloat16, float16, int8 or one of your own "
                    "(default: not at all)")
  wire.add_argument("--wire_scope", default="across", metavar="SCOPE",
                    help="across, between workers (default), or all")
  link_flags.add_arguments(parser)
  shown = parser.add_argument_group("what is shown")
  shown.add_argument("--schedule", action="store_true",
                     help="one bucket's steps")
  shown.add_argument("--bucket", type=int, metavar="N",
                     help="which bucket's (default: 0, the first sent); "
                     "shows its steps")
  shown.add_argument("--html", metavar="FILE", help="write a page")
  shown.add_argument("--plan", metavar="FILE",
                     help="write the plan, which --all_reduce_spec=@FILE pins")


def run(args: argparse.Namespace) -> int:
  """Explains, and prints or writes it."""
  output.check_files(args, "html", "plan")
  _check_numbers(args)
  parsed = planner.parse_all_reduce_spec(args.all_reduce_spec,
                                         "--all_reduce_spec")
  packing = _packing(args, parsed)
  topology = _topology(args)
  default = link_flags.default(args, topology, parsed.network)
  network = link_flags.changed(args, default, len(topology.workers) > 1)
  load = loads.from_args(args)
  explanation = explaining.explain(
      parsed, topology,
      [(size.shape, size.dtype) for size in load.sizes],
      packing=packing, network=network, wire=args.wire,
      wire_scope=args.wire_scope, spmd=args.spmd,
      backward_seconds=args.backward_seconds)
  assumed = assumptions.find(args, topology, default)
  bucket = _bucket(args, explanation)
  steps = (schedule.for_bucket(bucket, topology)
           if args.schedule or args.bucket is not None else None)
  if args.html is not None:
    output.write_text(args.html, writing.html(explanation, load.name, bucket))
  if args.plan is not None:
    explanation.save_plan(args.plan)
  if args.json:
    output.print_json(
        explanation.to_dict() | {"load": load.name}
        | {"assumed": [dataclasses.asdict(one) for one in assumed]}
        | ({"schedule": dataclasses.asdict(steps)} if steps else {}))
  else:
    _print(args, explanation, assumptions.text(assumed), steps)
  return 0


def _print(args: argparse.Namespace, explanation: explaining.Explanation,
           assumed: str, steps: schedule.Schedule | None) -> None:
  width = output.width()
  print(wording.report(explanation, width, assumed))
  if len(explanation.topology.devices) == 1:
    print("Try --devices=4 --workers=2, which needn't be here.")
  if not loads.given(args):
    print("\n" + textwrap.fill(
        f"The tensors are made up ({loads.DEFAULT_SIZES}); give yours with "
        "--sizes, --model or --saved_model.", width))
  if explanation.spec.plans and not explanation.plan.is_pinned:
    print("\n" + textwrap.fill(
        f"Not pinned: unlike the nearest plan of {explanation.spec.file}, this "
        f"batch {explanation.difference_from_plans()}.", width))
  if steps:
    print(f"\nThe steps of bucket {args.bucket or 0}:\n\n"
          f"{schedule.text(steps, width)}")
  if args.html is not None:
    print(f"\nThe page is in {args.html}.")
  if args.plan is not None:
    print(f"\nThe plan is in {args.plan}; pin it with --all_reduce_spec="
          f"@{args.plan}")


def _check_numbers(args: argparse.Namespace) -> None:
  for name, most in _MOST.items():
    value = getattr(args, name)
    if value is not None:
      errors.check_whole_number(
          f"--{name}", value, 1 if name in ("workers", "devices") else 0, most)
  if args.workers * (args.devices or 1) > _MOST_REPLICAS:
    raise errors.InputError(
        f"`--workers` ({args.workers}) times `--devices` ({args.devices}) "
        f"must be at most {_MOST_REPLICAS:,} replicas.")


def _packing(args: argparse.Namespace,
             parsed: spec.AllReduceSpec) -> planner.Packing | None:
  """Returns what flags say of packing; None to leave it to the spec."""
  if args.spmd or args.bytes_per_pack is not None:
    return _packs_of_programs(args)
  small, group = args.agg_small_grads_max_bytes, args.agg_small_grads_max_group
  if small is None and args.num_packs is None:
    if group is None:
      return None
    if parsed.packing and parsed.packing.small_max_bytes:
      return dataclasses.replace(parsed.packing, small_max_group=group)
  num_bytes = 0 if small is None else spec.parse_bytes(
      small, "--agg_small_grads_max_bytes")
  if args.num_packs and num_bytes:
    raise errors.InputError(
        f"`--agg_small_grads_max_bytes` ({small}) must be left out beside "
        "--num_packs, which packs tensors of any size; give one of them.")
  if group and not num_bytes:
    raise errors.InputError(
        f"`--agg_small_grads_max_group` ({group}) must come with "
        "--agg_small_grads_max_bytes, which says what is grouped; give both.")
  return planner.Packing(args.num_packs or 0, num_bytes,
                         10 if group is None else group)


def _packs_of_programs(args: argparse.Namespace) -> planner.Packing | None:
  """Returns what flags say of packing for `SpmdStrategy`."""
  if not args.spmd:
    raise errors.InputError(
        f"`--bytes_per_pack` ({args.bytes_per_pack}) must come with --spmd; "
        "use --num_packs for one client.")
  for flag in ("num_packs", "agg_small_grads_max_bytes",
               "agg_small_grads_max_group"):
    if getattr(args, flag) is not None:
      raise errors.InputError(
          f"`--{flag}` ({getattr(args, flag)}) must be left out with --spmd; "
          "use --bytes_per_pack.")
  if args.bytes_per_pack is None:
    return None
  return planner.Packing(cap=spec.parse_bytes(args.bytes_per_pack,
                                              "--bytes_per_pack"))


def _topology(args: argparse.Namespace) -> topology_lib.Topology:
  if args.devices is not None:
    return topology_lib.Topology.grid(args.workers, args.devices,
                                      device_type=args.device_type or "GPU")
  import tensorflow as tf
  kinds = [args.device_type] if args.device_type else ["GPU", "CPU"]
  for kind in kinds:
    here = tf.config.list_logical_devices(kind)
    if here:
      return topology_lib.Topology.grid(args.workers, len(here),
                                        device_type=kind)
  raise errors.InputError(
      f"`--device_type` ({args.device_type}) must be a kind of device that is "
      "here; give --devices for others.")


def _bucket(args: argparse.Namespace,
            explanation: explaining.Explanation) -> planner.Bucket:
  buckets, number = explanation.plan.buckets, args.bucket or 0
  if not 0 <= number < len(buckets):
    rule = (f"one of the plan's {len(buckets):,}: from 0 to "
            f"{len(buckets) - 1}" if len(buckets) > 1
            else "0, the plan's only one")
    raise errors.InputError(f"`--bucket` ({number}) must be {rule}.")
  return buckets[number]
