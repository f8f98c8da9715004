"""Lets absltest's helpers work under pytest, which has no absltest.main."""

from absl import flags

flags.FLAGS.mark_as_parsed()
