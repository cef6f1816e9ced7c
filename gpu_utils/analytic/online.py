"""The online softmax: maximum and sum of a row, block by block, in float32 as a kernel has them.

After each block there is a maximum m and a sum l of exp(x - m) over all elements so far. Where a block brings a larger
maximum, the old sum is in the wrong unit and is multiplied by exp(m_old - m_new). A row is read once, and softmax and
cross-entropy follow from m and l: exp(x - m) / l, and m + log(l) - x[target].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_utils.errors import BadArgument

_MINUS_INF = np.float32(-np.inf)


@dataclass(frozen=True)
class Merge:
    """One block joins the running maximum and sum. All numbers are those of float32.

    start, stop   the elements of the block
    m_old, l_old  before it: -inf and 0 before the first block
    block_max     the largest element of the block
    m             the larger of m_old and block_max
    factor        exp(m_old - m), what l_old is multiplied by
    added         the sum of exp(x - m) over the block
    l             factor * l_old + added
    """

    start: int
    stop: int
    m_old: float
    l_old: float
    block_max: float
    m: float
    factor: float
    added: float
    l: float  # noqa: E741  (the letter of the papers)


def merges(row: Sequence[float], block: int, *, guarded: bool = True) -> list[Merge]:
    """The merges of a row, in order.

    row      logits; -inf stands for an element that is masked out
    block    elements of a block; the last one may be shorter
    guarded  where m is -inf, because all elements so far are, 0 is subtracted in its place; without that,
             -inf - (-inf) is NaN, and everything from there on

    Errors: BadArgument for a row that is empty or holds NaN or +inf, and for a block below 1.

    >>> [(merge.m, round(merge.factor, 4), round(merge.l, 4)) for merge in merges([0, 1, 3, 2], 2)]
    [(1.0, 0.0, 1.3679), (3.0, 0.1353, 1.553)]
    """
    if not len(row) or any(math.isnan(x) or x == math.inf for x in row):
        raise BadArgument(f"the row {list(row)} cannot be used; expected numbers below +inf, one at least")
    if block < 1:
        raise BadArgument(f"a block of {block} elements was asked for; expected 1 or more")
    values = np.asarray(row, np.float32)
    found: list[Merge] = []
    m, total = _MINUS_INF, np.float32(0)
    with np.errstate(invalid="ignore"):
        for start in range(0, len(values), block):
            part = values[start : start + block]
            m_old, l_old, m = m, total, max(m, part.max())
            unit = np.float32(0) if guarded and m == _MINUS_INF else m
            factor, added = np.exp(m_old - unit), np.exp(part - unit).sum(dtype=np.float32)
            total = factor * l_old + added
            ends = (start, start + len(part))
            found.append(Merge(*ends, *map(float, (m_old, l_old, part.max(), m, factor, added, total))))
    return found


def exact(row: Sequence[float]) -> tuple[float, float]:
    """The maximum of a row and its sum of exp(x - maximum) in float64; (-inf, 0) where all elements are -inf.

    >>> exact([1.0, 1.0, float("-inf")])
    (1.0, 2.0)
    """
    largest = max(row)
    return largest, math.fsum(math.exp(x - largest) for x in row if x != -math.inf)
