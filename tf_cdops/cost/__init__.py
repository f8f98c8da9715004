"""What all-reduces cost: one model, for plans, explanations and tuning.

This is the alpha-beta model. What all-reduces use takes

    steps inside workers * latency inside + steps across * latency across
    + the busiest device's bytes inside its worker / bandwidth inside
    + the busiest worker's bytes from or to others / bandwidth across

A step in which anything crosses between workers counts as a step across. One
bucket's steps follow another's, as TensorFlow starts them in turn; loads are
added up over the batch before the busiest is looked for, because buckets
overlap. Shards run side by side: their loads add up and their steps don't.

One bucket doesn't overlap with itself: what it sends back waits for the sum.
So a batch takes no less than any of its buckets takes alone, phase by phase:

    the phase's steps * their latencies
    + the longer of the busiest device's bytes inside / bandwidth inside
      and the busiest worker's bytes across / bandwidth across

It is a model: it says which way is better and roughly why; `tf_cdops bench`
measures.
"""

from tf_cdops.cost.model import AllReduce
from tf_cdops.cost.model import Cost
from tf_cdops.cost.model import Model
from tf_cdops.cost.network import PRESETS
from tf_cdops.cost.network import Link
from tf_cdops.cost.network import Network
from tf_cdops.cost.network import Time
from tf_cdops.cost.network import lower_bound
from tf_cdops.cost.network import preset

__all__ = ["PRESETS", "AllReduce", "Cost", "Link", "Model", "Network", "Time",
           "lower_bound", "preset"]
