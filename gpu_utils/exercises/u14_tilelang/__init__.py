"""Unit 14: one operator in TileLang for an SM, a CU and an AI core. Its exercises, in the lab's order."""

NAMES = (
    # one source
    "gemm",
    "fused_epilogue",
    # layouts and proofs
    "swizzle",
    "prove_bounds",
    "prove_bijective",
    # who moves the data
    "flags",
    "memory_plan",
    "portability",
)
