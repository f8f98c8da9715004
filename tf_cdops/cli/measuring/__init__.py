"""Measures all-reduces side by side: how long they take, and whether right.

Absolute times vary from run to run; ratios within one don't. So all contenders
run in one process, their steps interleaved, on the same inputs.
"""
