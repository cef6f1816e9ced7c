"""Unit 07: PTX and AMDGCN by hand. The names of its exercises, in the order of the lab."""

NAMES = ("lane_sum", "dpp_sum", "mma_layout", "waitcnt", "barriers")
