"""Unit 08: FP8 and its neighbours. Its exercises, in the lab's order."""

NAMES: tuple[str, ...] = ("quantize_tile", "quantize_block", "gemm", "linear", "train", "kv_cache_fp8")
