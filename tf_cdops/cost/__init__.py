"""What all-reduces cost: one model, for plans, explanations and tuning.

This is the alpha-beta model. What all-reduces use takes

    the longest chain's steps inside workers * latency inside
    + its steps across * latency across
    + the busiest device's bytes inside its worker / bandwidth inside (where
      devices share a link, as CPUs share memory, all of the worker's bytes)
    + the busiest worker's bytes from or to others / bandwidth across
    + the busiest worker's messages * the processor's time for one
    + the bytes that it copies into packs, and out / bandwidth of its memory

A step in which anything crosses between workers counts as a step across.
Buckets and shards run side by side: their loads and messages add up over the
batch before the busiest is looked for, and only the longest chain is waited
for.

One bucket doesn't overlap with itself: what it sends back waits for the sum.
So a batch takes no less than any of its buckets takes alone, phase by phase:

    the phase's steps * their latencies
    + the longer of the busiest device's bytes inside / bandwidth inside
      and the busiest worker's bytes across / bandwidth across

It is a model: it says which way is better and roughly why; `tf_cdops bench`
measures.
"""

from tf_cdops.cost.links_file import network_from_file
from tf_cdops.cost.model import AllReduce
from tf_cdops.cost.model import Cost
from tf_cdops.cost.model import Model
from tf_cdops.cost.network import MEASURED
from tf_cdops.cost.network import PRESETS
from tf_cdops.cost.network import Link
from tf_cdops.cost.network import Network
from tf_cdops.cost.network import Time
from tf_cdops.cost.network import lower_bound
from tf_cdops.cost.network import preset

__all__ = ["MEASURED", "PRESETS", "AllReduce", "Cost", "Link", "Model",
           "Network", "Time", "lower_bound", "network_from_file", "preset"]
