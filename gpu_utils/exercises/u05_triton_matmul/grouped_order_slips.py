"""Wrong answers of 05.grouped_order. One kernel holds all mistakes, chosen while it runs: it is compiled once."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

GROUP = 8
BLOCK = 128
"""Program ids of one program of order_kernel; given to the learner."""

(
    ROW_BY_ROW,
    COLUMN_BY_COLUMN,
    EXCHANGED,
    NO_LOW_GROUP,
    LOW_ONLY_ALONE,
    COLUMN_OF_A_FULL_GROUP,
    GROUP_OF_THE_COLUMNS,
    REMAINDER_LOST,
    PARTS_ROUNDED_UP,
    REMAINDER_ADDED_TO_EACH,
    INVERSE,
) = map(tl.constexpr, range(11))


@triton.jit(do_not_specialize=["tiles_m", "tiles_n", "dies", "group", "slip"])
def _kernel(tiles_ptr, out_ptr, tiles_m, tiles_n, dies, group, slip, BLOCK: tl.constexpr):
    count = tiles_m * tiles_n
    ids = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pid = tl.minimum(ids, count - 1)
    # the place in the order: each die walks a part of it
    die = pid % dies
    turn = pid // dies
    start = count // dies * die + tl.minimum(die, count % dies)
    start = tl.where(slip == REMAINDER_LOST, count // dies * die, start)
    start = tl.where(slip == PARTS_ROUNDED_UP, tl.cdiv(count, dies) * die, start)
    start = tl.where(slip == REMAINDER_ADDED_TO_EACH, count // dies * die + count % dies, start)
    each = tl.cdiv(count, dies)
    place = tl.where(slip == INVERSE, pid % each * dies + pid // each, start + turn)
    # the tile at that place
    in_group = group * tl.where(slip == GROUP_OF_THE_COLUMNS, tiles_m, tiles_n)
    inside = place % in_group
    first = place // in_group * group
    height = tl.minimum(tiles_m - first, group)
    height = tl.where(slip == LOW_ONLY_ALONE, tl.minimum(tiles_m, group), height)
    height = tl.where(slip == NO_LOW_GROUP, group, height)
    height = tl.maximum(height, 1)  # a group that is not there has none
    row = first + inside % height
    column = inside // tl.where(slip == COLUMN_OF_A_FULL_GROUP, group, height)
    row = tl.where(slip == ROW_BY_ROW, place // tiles_n, row)
    column = tl.where(slip == ROW_BY_ROW, place % tiles_n, column)
    row = tl.where(slip == COLUMN_BY_COLUMN, place % tiles_m, row)
    column = tl.where(slip == COLUMN_BY_COLUMN, place // tiles_m, column)
    other = row
    row = tl.where(slip == EXCHANGED, column, row)
    column = tl.where(slip == EXCHANGED, other, column)
    there = (row >= 0) & (row < tiles_m) & (column >= 0) & (column < tiles_n)
    number = tl.load(tiles_ptr + row * tiles_n + column, mask=there, other=-1)
    tl.store(out_ptr + ids, number, mask=ids < count)


def switched(
    slip: tl.constexpr | None = None,
    group: int = GROUP,
    programs: Callable[[Tensor], int] = lambda tiles: triton.cdiv(tiles.numel(), BLOCK),
    dies_are: int | None = None,
) -> Callable[[Tensor, int], Tensor]:
    """The right answer with one mistake in it, with another group or grid, or for a number of dies that is fixed."""

    def answer(tiles: Tensor, dies: int) -> Tensor:
        out = torch.empty(tiles.numel(), dtype=tiles.dtype, device=tiles.device)
        number = -1 if slip is None else slip.value
        _kernel[(programs(tiles),)](tiles, out, *tiles.shape, dies_are or dies, group, number, BLOCK=BLOCK)
        return out

    return answer


def in_two_dimensions(tiles: Tensor, dies: int) -> Tensor:
    return switched()(tiles, dies).view(tiles.shape)


def returns_nothing(tiles: Tensor, dies: int) -> None:
    switched()(tiles, dies)
