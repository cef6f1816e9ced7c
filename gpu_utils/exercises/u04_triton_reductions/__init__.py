"""Unit 04: memory-bound kernels in Triton. Its exercises, in the lab's order."""

NAMES = (
    # element by element
    "copy",
    # a row for each program
    "softmax",
    # across rows and tiles
    # the loss
)
