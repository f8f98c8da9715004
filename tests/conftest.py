"""Lets absltest's helpers work under pytest, and Ctrl-C in a background job."""

import os
import signal

from absl import flags

flags.FLAGS.mark_as_parsed()  # There is no absltest.main here.

# A shell has its background jobs, and all that these start, ignore Ctrl-C. Some
# tests send it to programs, and look at what those do.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)

# On some CPUs TensorFlow uses oneDNN, which says so on standard error and fails
# on a replica's empty batch (ReluGrad, with Keras alone too). As in .bazelrc.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
