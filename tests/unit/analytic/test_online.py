"""The online softmax: block by block it gives what the row at once gives, also where blocks are masked."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from gpu_utils.analytic.online import exact, merges
from gpu_utils.errors import BadArgument

INF = math.inf


@pytest.mark.parametrize("block", [1, 3, 8, 100])
@pytest.mark.parametrize("scale", [1, 1e4])
def test_the_last_merge_is_the_softmax_of_the_row(block, scale):
    row = (scale * torch.randn(29, generator=torch.Generator().manual_seed(0))).tolist()
    last = merges(row, block)[-1]
    want = torch.logsumexp(torch.tensor(row, dtype=torch.float64), 0).item()
    assert last.m + math.log(last.l) == pytest.approx(want, rel=1e-6)
    assert last.m == exact(row)[0]
    assert last.l == pytest.approx(exact(row)[1], rel=1e-6)


def test_a_merge_is_its_formula_and_blocks_cover_the_row():
    found = merges([0.5, 2.0, -1.0, 3.0, 0.0], 2)
    assert [(one.start, one.stop) for one in found] == [(0, 2), (2, 4), (4, 5)]
    for before, one in pairwise(found):
        assert (one.m_old, one.l_old) == (before.m, before.l)
        assert one.m == max(one.m_old, one.block_max)
        assert one.factor == pytest.approx(math.exp(one.m_old - one.m), rel=1e-6)
        assert one.l == pytest.approx(one.factor * one.l_old + one.added, rel=1e-6)
    assert (found[0].m_old, found[0].l_old, found[0].factor) == (-INF, 0.0, 0.0)


def test_a_first_block_of_minus_infinity_is_nan_without_the_guard_and_nothing_with_it():
    row = [-INF, -INF, 1.0, 2.0]
    assert all(math.isnan(one.l) for one in merges(row, 2, guarded=False))
    guarded = merges(row, 2)
    assert (guarded[0].m, guarded[0].factor, guarded[0].l) == (-INF, 0.0, 0.0)
    assert guarded[1].l == pytest.approx(1 + math.exp(-1), rel=1e-6)
    assert not math.isnan(merges(row, 4, guarded=False)[0].l)
    assert merges([1.0, -INF], 1, guarded=False)[1].l == 1.0
    assert exact([-INF, -INF]) == (-INF, 0.0)


@pytest.mark.parametrize(("row", "block"), [([], 1), ([math.nan], 1), ([INF], 1), ([1.0], 0)])
def test_a_row_or_a_block_that_cannot_be_used_is_refused(row, block):
    with pytest.raises(BadArgument, match="expected"):
        merges(row, block)
