"""What an all-reduce algorithm is, which there are, and how they compose."""

from tf_cdops.registry.algorithm import Algorithm
from tf_cdops.registry.algorithm import AllReduce
from tf_cdops.registry.composition import in_order
from tf_cdops.registry.composition import sharded
from tf_cdops.registry.pairs import pair
from tf_cdops.registry.registration import all_reduce_algorithms
from tf_cdops.registry.registration import lookup
from tf_cdops.registry.registration import register_all_reduce
from tf_cdops.registry.traffic import Phase
from tf_cdops.registry.traffic import Traffic
from tf_cdops.registry.traffic import engine_traffic
from tf_cdops.registry.traffic import phase

__all__ = [
    "Algorithm",
    "AllReduce",
    "Phase",
    "Traffic",
    "all_reduce_algorithms",
    "engine_traffic",
    "in_order",
    "lookup",
    "pair",
    "phase",
    "register_all_reduce",
    "sharded",
]
