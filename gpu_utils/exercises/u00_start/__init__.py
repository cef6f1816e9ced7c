"""Unit 00: which machine this is, and two first kernels. The names of its exercises, in the order of the lab."""

NAMES = ("platform", "vector_add", "saxpy")
