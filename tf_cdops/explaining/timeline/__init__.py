"""What happened in a few steps, from what a profiler has seen: pure.

`reading` makes kernels of a profile's events, `assembling` a trace of those of
all hosts, `summary` the figures, and `wording`, `chrome` and the page show it.
"""

# Names the file of programs that `tf_cdops launch --trace` starts.
VARIABLE = "TF_CDOPS_TRACE"
