"""Unit 09: what two sums may differ by, and the same bits on purpose. Its exercises, in the lab's order."""

NAMES = (
    # how far apart
    # TODO "ulp",
    # TODO "reduction_order",
    # TODO "tolerance",
    # the same bits on purpose
    # TODO "fixed_tree",
    "batch_invariant",
    # noise or a bug
    # TODO "layer_diff",
    # TODO "convergence",
)
