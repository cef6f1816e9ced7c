"""Unit 12: orders of forwards and backwards over the stages of a pipeline. Its exercises, in the lab's order."""

NAMES = (
    # one order, and what it costs
    "one_f_one_b",
    "validate",
    "bubble",
    "memory",
    # the backward in two
    "zero_bubble",
    "dualpipe",
    # on ranks and on a cluster
    "choose",
)
