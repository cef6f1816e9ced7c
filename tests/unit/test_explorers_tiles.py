"""The explorer of tiles, and the count behind it: it agrees with the replay of a kernel's accesses through an L2."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import explore, virtual_gpu
from gpu_utils.analytic.tile_order import by_die, fetched_strips, grouped, order_traffic, row_by_row
from gpu_utils.chips.caches import CacheSizes
from gpu_utils.errors import UnknownName
from gpu_utils.lesson import l2_traffic
from gpu_utils.ui.explore import tiles
from tests.unit.test_explorers import filled, parsed


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, order_ptr, N, K, TILE: tl.constexpr):
    m = tl.load(order_ptr + 2 * tl.program_id(0)) * TILE + tl.arange(0, TILE)[:, None]
    n = tl.load(order_ptr + 2 * tl.program_id(0) + 1) * TILE + tl.arange(0, TILE)[None, :]
    acc = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, K, TILE):
        k = first + tl.arange(0, TILE)
        acc = tl.dot(tl.load(a_ptr + m * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n), acc)
    tl.store(c_ptr + m * N + n, acc.to(c_ptr.dtype.element_ty))


@pytest.mark.parametrize(("dies", "kib"), [(1, 96), (1, 1024), (2, 128)])
def test_the_count_of_strips_agrees_with_the_replayed_accesses(dies, kib):
    side, depth, tile, resident = 512, 256, 64, 12
    a, b = torch.randn(side, depth).half(), torch.randn(depth, side).half()
    cache = CacheSizes(size=kib << 10, line=128, fill=128, ways=16, parts=dies, units=resident)
    found = []
    for order in (row_by_row(8, 8), grouped(8, 8, 3), by_die(grouped(8, 8, 3), dies)):
        at = torch.from_numpy(order).int()
        with virtual_gpu("gfx942", l2=True) as gpu:
            product_kernel[(64,)](a, b, torch.empty(side, side).half(), at, side, depth, TILE=tile)
        replayed = l2_traffic(gpu.last, cache, resident)
        counted = order_traffic(order, (side, side, depth), (tile, tile), resident, cache.size, dies)
        assert counted.read == pytest.approx(replayed.read_bytes, rel=0.1)
        assert counted.written == side * side * 2
        found.append(counted.read)
    if kib == 1024:
        assert set(found) == {2 * side * depth * 2}  # everything fits: A and B once
    elif dies == 1:
        assert found[1] < found[0]
    else:
        assert found[2] < found[1]


def test_the_fetched_strips_are_what_a_small_cache_reads():
    order = grouped(9, 7, 4)
    found = order_traffic(order, (9 * 64, 7 * 64, 4096), (64, 64), 10, cache_bytes=1 << 17)
    assert found.read == fetched_strips(order, 10) * 64 * 4096 * 2


def test_the_strips_that_are_marked_are_those_of_the_sentence():
    picture = tiles.draw(2048, 4096, 4096, "128 x 128", 8, "MI300X", "dies", 0)
    assert "die 0 (dark) need 8 strips of A and 5 strips of B; the 8 L2s together fetch 104" in picture.words
    cell = tiles._ROOM / 32
    marked = [box for box in filled(parsed(picture)) if box.get("class") == "even"]
    assert float(marked[-2].get("height")) == pytest.approx(8 * cell, abs=0.1)
    assert float(marked[-1].get("width")) == pytest.approx(5 * cell, abs=0.1)


def test_groups_that_help_one_cache_hurt_eight():
    explorer = explore("tiles", order="groups")
    assert "The whole product on H100, grouped: 1,66" in explorer.words
    explorer.controls["order"].value = "rows"
    assert "row by row: 4,16" in explorer.words
    explorer.controls["chip"].value = "MI300X"
    explorer.controls["order"].value = "groups"
    assert "grouped: 8,5" in explorer.words
    explorer.controls["order"].value = "dies"
    assert "dealt by die: 2,97" in explorer.words


def test_every_tile_is_done_at_the_end():
    explorer = explore("tiles", M=1024, N=1024, done=99)
    assert "Programs 0 to 63 of 64" in explorer.words


@pytest.mark.parametrize("wrong", [{"chip": "H20"}, {"order": "columns"}, {"tile": "32 x 32"}, {"M": 1000}])
def test_what_is_not_in_the_lists_is_refused(wrong):
    with pytest.raises(UnknownName):
        explore("tiles", **wrong)
