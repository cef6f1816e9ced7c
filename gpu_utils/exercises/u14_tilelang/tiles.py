"""What the exercises with tile programs share: the chips that grade them, and what a tiling moves and multiplies."""

from __future__ import annotations

from gpu_utils.grading.exercise import Case

TARGETS = ("ascend950", "sm_80", "gfx942")
"""First the one on which a mistake shows fastest."""


def moved(case: Case, out_bytes: int, more: int = 0) -> int:
    """Bytes of a product in tiles: of every tile its rows of a and b, 2 bytes each, and the result; `more` per tile.

    >>> moved(Case("", M=64, N=96, K=96, BM=32, BN=32), out_bytes=4)
    98304
    """
    tiles = case["M"] // case["BM"] * (case["N"] // case["BN"])
    return tiles * (2 * case["K"] * (case["BM"] + case["BN"]) + more) + out_bytes * case["M"] * case["N"]


def products(case: Case) -> int:
    """FLOPs of a product: a multiplication and an addition for each of M N K.

    >>> products(Case("", M=2, N=3, K=4))
    48
    """
    return 2 * case["M"] * case["N"] * case["K"]
