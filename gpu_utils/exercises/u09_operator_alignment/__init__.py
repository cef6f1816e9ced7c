"""Unit 09: what two sums may differ by, and the same bits on purpose. Its exercises, in the lab's order."""

NAMES = (
    # how far apart
    "ulp",
    "reduction_order",
    "tolerance",
    # the same bits on purpose
    "fixed_tree",
    "batch_invariant",
    # noise or a bug
    "layer_diff",
    "convergence",
)
