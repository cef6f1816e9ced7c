"""Unit 11: collectives, dispatch and combine over ranks. Its exercises, in the lab's order."""

NAMES = (
    # collectives by hand
    "ring_all_reduce",
    "hierarchical",
    "all_to_all_two_hop",
    # what a transfer costs
    "alpha_beta",
    "node_limited",
    "bandwidth_rule",
    # dispatch and combine
    "dispatch",
    "combine",
    "fp8_dispatch",
    # a whole step
    "overlap",
    "straggler",
    "eplb",
)
