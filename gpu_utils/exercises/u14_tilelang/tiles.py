"""What the exercises with tile programs share: the chips that grade them, and what a tiling moves and multiplies."""

from __future__ import annotations

from gpu_utils.grading.exercise import Case

TARGETS = ("ascend950", "sm_80", "gfx942")
"""First the one on which a mistake shows fastest."""


def products(case: Case) -> int:
    """FLOPs of a product: a multiplication and an addition for each of M N K.

    >>> products(Case("", M=2, N=3, K=4))
    48
    """
    return 2 * case["M"] * case["N"] * case["K"]


def most_moved(case: Case, out_bytes: int, more: int = 0) -> float:
    """What a right kernel moves at most on the chip of the case, with the whole transactions that it causes.

    A row of a tile is loaded in lines of 128 bytes on an AMD GPU. There and on NVIDIA the lanes of a wave may hold what
    they store in such a way that a line is written by several instructions. `more` bytes come with each tile.

    >>> round(most_moved(Case("", target="ascend950", M=64, N=96, K=96, BM=32, BN=32, BK=32), out_bytes=4))
    101990
    """
    line, stored = {"ascend950": (1, 1), "sm_80": (32, 4), "gfx942": (128, 8)}[case["target"]]
    tiles = case["M"] // case["BM"] * (case["N"] // case["BN"])
    row = -(-2 * case["BK"] // line) * line
    loads = case["K"] // case["BK"] * row * (case["BM"] + case["BN"]) + more
    return 1.05 * tiles * loads + max(out_bytes, stored) * case["M"] * case["N"]
