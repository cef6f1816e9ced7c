"""Unit 08: FP8 and its neighbours. Its exercises, in the lab's order."""

NAMES = (
    # to the bit
    "decode",
    "encode",
    "fn_to_fnuz",
    # scales
    "quantize_tile",
    "quantize_block",
    # products and sums
    "accumulator",
    "gemm",
    # training
    "linear",
    "train",
    # a cache
    "kv_cache_fp8",
)
