"""14.portability: what its judge says of bad answers, and that its table is what virtual machines count."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.analytic.machines import MACHINES, machine
from gpu_utils.errors import UnknownName
from gpu_utils.exercises.u14_tilelang import portability_slips as slips
from gpu_utils.exercises.u14_tilelang.counted_block import counted_block, tiled_product
from gpu_utils.exercises.u14_tilelang.portability import EXERCISE
from gpu_utils.exercises.u14_tilelang.portability_cases import LARGE


def _said(value: object) -> str:
    problem = EXERCISE.judge(LARGE, tiled_product(), value)
    return problem.detail if problem else ""


@pytest.mark.parametrize("value", [None, 3, "tile", {"tile": {}}, ("128x128x64",), ("128x128x64", None)])
def test_an_answer_of_another_form_is_told_the_form(value: object) -> None:
    assert "expected (tile, {chip: (bound, fraction)})" in _said(value)


@pytest.mark.parametrize("pair", [0.5, ("matrix",), ("matrix", "half"), (0.5, "matrix"), ("matrix", torch.ones(2))])
def test_a_pair_of_another_form_is_told_the_form(pair: object) -> None:
    assert "dict of pairs of a word and a number" in _said(("128x128x64", {"sm_90": pair}))


def test_a_wrong_fraction_is_told_as_a_ratio_and_a_missing_chip_by_name() -> None:
    tile, report = slips.right(**tiled_product())
    bound, share = report["gfx942"]
    assert "on gfx942 the fraction is" in _said((tile, report | {"gfx942": (bound, share / 2)}))
    assert "0.5 times the right one" in _said((tile, report | {"gfx942": (bound, share / 2)}))
    assert "the report has 'sm_90'; expected 'sm_90', 'gfx942'" in _said((tile, {"sm_90": report["sm_90"]}))
    assert "another part takes longer" in _said((tile, report | {"gfx942": ("other", share)}))


def test_each_chip_would_pick_another_tile_for_itself_than_they_pick_together() -> None:
    product = tiled_product()
    alone = {
        name: slips.right(product["counts"], {name: chip}, product["work"])[0]
        for name, chip in product["chips"].items()
    }
    assert len({*alone.values(), slips.right(**product)[0]}) >= 2


def test_the_rates_of_the_ascend_show_their_formula() -> None:
    ascend = machine("ascend950")
    assert (ascend.matrix.value, ascend.memory.value, ascend.other.value) == (378.5, 1.25, 5.9)
    assert "2 x 16 x 16 x 16 FLOP of a cycle x 28 cores x 1650 MHz" in ascend.matrix.note
    assert [machine(target).units.value for target in MACHINES] == [132, 304, 28]
    with pytest.raises(UnknownName):
        machine("gfx1100")


@pytest.mark.usefixtures("tilelang")
def test_one_block_counts_on_three_machines_what_the_table_has() -> None:
    rows = counted_block(BM=64, BN=64, BK=32, K=128)
    for row in rows.values():
        assert row["bytes counted"] == row["bytes in the table"] == 2 * 128 * 128 + 4 * 64 * 64
        assert row["matrix FLOPs counted"] == row["matrix FLOPs in the table"] == 2 * 64 * 64 * 128
    assert len(rows) == 3
