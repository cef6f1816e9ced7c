"""Unit 07: PTX and AMDGCN by hand. The names of its exercises, in the order of the lab."""

NAMES = ("waitcnt", "barriers")
