"""What Keras 3 needs mended or watched under a strategy.

Optimizers around optimizers, each of which does what Keras documents where
Keras' own can't with several replicas: they are Keras optimizers, for `compile`
and for loops with `strategy.run`, and are saved with a model; import this
module before such a model is loaded. And callbacks that name gradients,
compare replicas and show where a step's time goes.
"""

from tf_cdops.cluster.first_batch import accept_uneven_batches
from tf_cdops.keras.accumulation import GradientAccumulation
from tf_cdops.keras.loss_scale import LossScaleOptimizer
from tf_cdops.keras.moving_average import ExponentialMovingAverage
from tf_cdops.keras.name_gradients import NameGradients
from tf_cdops.keras.replica_check import ReplicaCheck
from tf_cdops.keras.skipping import SkipNonFinite
from tf_cdops.keras.timeline import Timeline

__all__ = ["ExponentialMovingAverage", "GradientAccumulation",
           "LossScaleOptimizer", "NameGradients", "ReplicaCheck",
           "SkipNonFinite", "Timeline", "accept_uneven_batches"]
