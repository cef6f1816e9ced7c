"""Unit 08: FP8 and its neighbours. Its exercises, in the lab's order."""

NAMES = (
    # to the bit
    "decode",
    "encode",
    "fn_to_fnuz",
    # sums
    "accumulator",
)
