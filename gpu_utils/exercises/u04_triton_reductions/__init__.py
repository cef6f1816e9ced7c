"""Unit 04: memory-bound kernels in Triton. Its exercises, in the lab's order."""

NAMES = (
    # element by element
    "copy",
    "gelu",
    "dropout",
    # a row for each program
    "softmax",
    "rmsnorm",
    "layernorm",
    # across rows and tiles
    "sum_of_columns",
    "layernorm_backward",
    "transpose",
    # the loss
    "cross_entropy",
)
