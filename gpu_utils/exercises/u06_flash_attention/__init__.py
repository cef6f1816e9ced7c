"""Unit 06: FlashAttention, forward, backward and decoding. Its exercises, in the lab's order."""

NAMES = (
    # forward
    "online_softmax",
    "forward",
    # backward and relatives
    "backward",
    "gqa",
    "sliding_window",
    # decoding
    "decode",
    "paged_decode",
    "mla_decode",
)
