"""Unit 05: matrix multiplication in Triton. Its exercises, in the lab's order."""

NAMES = (
    # one tile
    "tiled",
    "accumulate",
    "epilogue",
    # many tiles
    "grouped_order",
    # a chip full of tiles
    "persistent",
    "split_k",
    "autotune",
)
