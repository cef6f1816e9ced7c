"""Unit 00: which machine this is, first kernels, their machine code and counters.

The names of its exercises, in the order of the lab.
"""

NAMES = ("platform", "vector_add", "saxpy", "find_mask", "predict_counters", "column_sums")
