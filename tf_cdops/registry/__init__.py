"""What an all-reduce algorithm is, which there are, and how they compose."""

from tf_cdops.registry.algorithm import Algorithm
from tf_cdops.registry.algorithm import AllReduce
from tf_cdops.registry.composition import in_order
from tf_cdops.registry.composition import sharded
from tf_cdops.registry.pairs import on_one_worker
from tf_cdops.registry.pairs import pair
from tf_cdops.registry.registration import all_reduce_algorithms
from tf_cdops.registry.registration import lookup
from tf_cdops.registry.registration import register_all_reduce
from tf_cdops.registry.traffic import Phase
from tf_cdops.registry.traffic import Traffic
from tf_cdops.registry.traffic import engine_traffic
from tf_cdops.registry.traffic import phase
from tf_cdops.registry.wire import Wire
from tf_cdops.registry.wire import WireCodec
from tf_cdops.registry.wire import check_wire
from tf_cdops.registry.wire import register_wire_codec
from tf_cdops.registry.wire import wire_codecs
from tf_cdops.registry.wiring import wired

__all__ = [
    "Algorithm",
    "AllReduce",
    "Phase",
    "Traffic",
    "Wire",
    "WireCodec",
    "all_reduce_algorithms",
    "check_wire",
    "engine_traffic",
    "in_order",
    "lookup",
    "on_one_worker",
    "pair",
    "phase",
    "register_all_reduce",
    "register_wire_codec",
    "sharded",
    "wire_codecs",
    "wired",
]
