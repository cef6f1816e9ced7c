"""The numbers that the prose of lesson 02 states and no cell prints, from the course's own models and compilers."""

from __future__ import annotations

import pytest

from gpu_utils import CHIPS
from gpu_utils.analytic.access import bank_conflicts
from gpu_utils.analytic.inference import MODELS, largest_batch, plan
from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips import TARGETS
from gpu_utils.compiler.holding import holding
from gpu_utils.compiler.reading import kernel_descriptor


@pytest.mark.parametrize("chip", ["H100", "MI300X"])
def test_activations_of_a_prompt_take_as_much_as_the_text_says(chip):
    assert round(plan(chip, MODELS["Mistral-7B"], batch=1, context=32768).activations / 1e9, 1) == 3.6
    assert largest_batch(chip, MODELS["Mistral-7B"], 32768) == {"H100": 14, "MI300X": 40}[chip]
    assert CHIPS[chip].memory_gb.value in (80, 192)


def test_the_descriptor_counts_in_eights_as_the_text_says():
    asked = [kernel_descriptor(holding(n, target).binary).vgprs for n, target in ((68, "gfx942"), (97, "gfx1100"))]
    assert asked == [72, 104]


def test_two_columns_of_the_small_tile_meet_in_one_of_eight_banks_and_one_column_in_none_of_four():
    word = {(row, column): 5 * row + column for row in range(4) for column in range(4)}
    assert len({word[row, 0] % 4 for row in range(4)}) == 4
    banks = [word[row, column] % 8 for column in (0, 1) for row in range(4)]
    assert len(set(banks)) == 7
    assert word[0, 0] % 8 == word[3, 1] % 8


def test_the_example_of_occupancy_is_counted_right():
    found = occupancy(TARGETS["sm_80"], registers=100, shared=30_000, num_warps=8)
    assert (found.blocks, found.limited_by) == (2, ("registers",))
    assert list(found.limits.values()) == [8, 2, 5, 32]


def test_the_padded_tile_has_one_conflict_for_each_read_on_gfx950_and_none_for_a_write():
    rows = [divmod(lane, 32) for lane in range(64)]
    write = bank_conflicts([4 * (33 * row + column) for row, column in rows], target="gfx950", access="write")
    read = bank_conflicts([4 * (33 * column + row) for row, column in rows], target="gfx950", access="read")
    assert (write.conflicts, read.conflicts) == (0, 1)
    assert 16 * 4 * 4 == 256  # blocks, wavefronts of each, rows of each thread
