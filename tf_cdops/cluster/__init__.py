"""Several machines: TensorFlow's own servers, and a strategy over them."""

from tf_cdops.cluster.local import LocalCluster
from tf_cdops.cluster.strategy import multi_worker_strategy
from tf_cdops.cluster.watchdog import StepWatchdog

__all__ = ["LocalCluster", "StepWatchdog", "multi_worker_strategy"]
