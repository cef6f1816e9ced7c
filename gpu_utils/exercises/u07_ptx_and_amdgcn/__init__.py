"""Unit 07: PTX and AMDGCN by hand. The names of its exercises, in the order of the lab."""

NAMES = (
    "read_listing",
    "ptx_ex2",
    "ptx_cvt_fp8",
    "amdgcn_perm",
    "lane_sum",
    "dpp_sum",
    "mma_layout",
    "waitcnt",
    "barriers",
    "fix_race",
    "no_spills",
    "sm_partition",
)
