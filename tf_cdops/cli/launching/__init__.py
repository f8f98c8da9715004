"""Starts one program for each worker, and ends them together."""
