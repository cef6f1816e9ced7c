"""How a server's operators cut their work into programs: by the batch, as libraries do, or by the row alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class ProductPlan(NamedTuple):
    """Rows and columns of a tile of x @ w, and in how many parts K is cut, each with a program of its own."""

    rows: int
    columns: int
    splits: int


def product_plan(rows: int, columns: int) -> ProductPlan:
    """What a library chooses for `rows` of x and `columns` of w: few tiles are cut along K, many rows get tall tiles.

    >>> product_plan(1, 256), product_plan(8, 256), product_plan(64, 256)
    (ProductPlan(rows=16, columns=32, splits=4), ProductPlan(rows=16, columns=32, splits=1), ProductPlan(rows=32, \
columns=32, splits=1))
    """
    if rows == 1:
        return ProductPlan(16, 32, splits=4)
    if rows <= 16:
        return ProductPlan(16, 32, splits=1)
    return ProductPlan(32, 32, splits=1)


class NormPlan(NamedTuple):
    """Elements of a row that its program takes at a time, and the warps (waves) of the program."""

    block: int
    warps: int


def norm_plan(rows: int) -> NormPlan:
    """What a library chooses: few rows leave the chip empty, so each gets a larger program.

    >>> norm_plan(1), norm_plan(8)
    (NormPlan(block=128, warps=4), NormPlan(block=64, warps=1))
    """
    return NormPlan(128, warps=4) if rows < 4 else NormPlan(64, warps=1)


FEWEST_PROGRAMS = 32
KEYS = 16
"""Positions that a program of the attention takes at a time."""


def attention_plan(requests: int, heads: int, longest: int) -> int:
    """Positions in each part of a context, a multiple of KEYS: as many parts as it takes to fill the chip.

    requests, heads  each pair is one query; longest: positions of the longest context of the batch

    >>> attention_plan(1, 4, 100), attention_plan(8, 4, 100)
    (16, 112)
    """
    blocks = -(-longest // KEYS)
    parts = max(1, min(blocks, FEWEST_PROGRAMS // (requests * heads)))
    return -(-blocks // parts) * KEYS


ProductChoice = Callable[[int, int], ProductPlan]
NormChoice = Callable[[int], NormPlan]
AttentionChoice = Callable[[int, int, int], int]

FIXED_PRODUCT = ProductPlan(16, 32, splits=1)
FIXED_NORM = NormPlan(64, warps=1)
FIXED_PART = 2 * KEYS


def fixed_product(rows: int, columns: int) -> ProductPlan:
    """The same for every batch."""
    return FIXED_PRODUCT


def fixed_norm(rows: int) -> NormPlan:
    """The same for every batch."""
    return FIXED_NORM


def fixed_attention(requests: int, heads: int, longest: int) -> int:
    """Parts of one size: a longer context has more of them, and none is cut elsewhere."""
    return FIXED_PART
