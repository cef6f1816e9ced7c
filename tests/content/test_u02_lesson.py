"""The numbers that the prose of lesson 02 states are those that its cells print, with the compilers of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_utils import CHIPS
from gpu_utils.analytic.access import bank_conflicts
from gpu_utils.analytic.inference import MODELS, largest_batch, plan
from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips import TARGETS
from gpu_utils.compiler.holding import holding
from gpu_utils.compiler.reading import kernel_descriptor
from tests.content.lesson_cells import printed

LESSON = Path(__file__).parents[2] / "content/02_gpu_machine/lesson.py"

STATED = {
    "imports": [],
    "read the branch": [],
    "predict the branch": [],
    "run the branch": ["sm_80       36            100", "gfx942      36             50"],
    "predict where they stand": [],
    "where they stand": ["every 16th: sm_80 72, gfx942 36; first eight: sm_80 36, gfx942 24"],
    "predict strides": [],
    "count strides": ["stride 8: sm_80 8, gfx942 8; stride 16: sm_80 8, gfx942 16; stride 32: sm_80 8, gfx942 32"],
    "predict the offset": [],
    "count the offset": ["offset 0              32       8", "offset 1             130       9"],
    "the loads with the offset": [
        "2      64  ld.global.b32 { %r1 }, [ %rd1 + 0 ];   ... and 3 more",
        "1      64  buffer_load_dwordx4",
    ],
    "two ways to load pairs": [],
    "predict pairs": [],
    "count pairs": ["evens_and_odds_kernel    128      16", "whole_pairs_kernel        64      16"],
    "predict banks": [],
    "count banks": ["stride 32           62      62      31", "stride 33            0       0       0"],
    "predict transpose": [],
    "count transpose": [
        "direct, sm_80              512               0",
        "tile_of_33, gfx942          64               0",
        "tile_of_33, gfx950          64             256",
    ],
    "the branch in both listings": [
        "2      32  fma.rn.f32 %r4",
        "$L__BB0_2:",
        "2      32  fma.rn.f32 %r15",
        "1      64  s_and_saveexec_b64",
        ".LBB0_3:",
        "1      32  v_fma_f32 v2, v3, 0.5",
        "1      64  s_xor_b64 exec",
        "1      64  s_endpgm",
    ],
    "the branch in sass": [
        "BSSY B0, .L_x_0",
        "@!P0 BRA .L_x_1",
        "FFMA R0, R0, R5, 1   ... and 11 more FFMA",
        "FFMA R0, R0, R5, -1   ... and 5 more FFMA",
        "BSYNC B0\n.L_x_0:\n    STG.E",
    ],
    "predict padding": [],
    "every padding": ["33      0       0       1", "34      2       2       0", "35      0       0       1"],
    "a matmul": ["registers of a lane           58      68"],
    "predict llvm": [],
    "read the comments": [
        "waves that fit              2",
        "waves that LLVM prints      8",
        "63 -> 64",
        "49152 -> 49152",
    ],
    "predict force": [],
    "force more waves": [
        "unset               140                        0           12",
        "4                   128                       48           16  registers and LDS",
        "5                    96                      364           16  LDS",
    ],
    "the two figures": [],
    "predict ridge": [],
    "the ridges": ["H100: 295; H200: 206; H20: 37; MI300X: 247"],
    "predict the l2": [],
    "through the l2": ["one L2 for all      1", "eight L2s         4.5"],
    "predict fits": [],
    "what fits where": [
        "H100     80                   65.5         15",
        "MI300X  192                  177.5         41",
    ],
}
"""Title of a cell -> parts of what it shows that the text around it relies on; none: another cell needs it."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, str]:
    return printed(LESSON, STATED, tmp_path_factory.mktemp("lesson"))


@pytest.mark.parametrize("title", [title for title in STATED if STATED[title]])
def test_a_cell_shows_what_the_text_says(outputs, title):
    for line in STATED[title]:
        assert line in outputs[title], outputs[title]


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
