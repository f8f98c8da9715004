"""Decides which tensors travel together and how, without TensorFlow."""
