"""Unit 11: expert parallelism. Its exercises, in the lab's order."""

NAMES = (
    # collectives by hand
    "ring_all_reduce",
    "hierarchical",
    "all_to_all_two_hop",
)
