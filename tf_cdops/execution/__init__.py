"""Emits a plan as TensorFlow ops, and checks what callers hand over."""
