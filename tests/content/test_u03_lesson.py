"""What the prose of lesson 03 states is what its cells print, with the compilers of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.content.lesson_cells import printed

LESSON = Path(__file__).parents[2] / "content/03_porting_to_rocm/lesson.py"

STATED = {
    "imports": [],
    "read the kernel": [],
    "the sum on three targets": ["gfx942   64 lanes: the sum is 128", "gfx1100  32 lanes: the sum is 256"],
    "which elements reach the sum": ["gfx942   elements 0 to 63:  " + 32 * "■" + " " + 32 * "·"],
    "both repairs": ["{'sm_80': 256, 'gfx942': 256, 'gfx1100': 256} of 256 elements"],
    "the votes": [
        "outliers_32.cu   gfx942   many [0]      first [-1]",
        "outliers.cu      gfx942   many [3]      first [36]",
    ],
    "the prefix sums": [
        "prefix_31.cu gfx942   out[30:36] = [31, 32, 1, 2, 3, 4]",
        "prefix.cu    gfx942   out[30:36] = [31, 32, 33, 34, 35, 36]",
    ],
    "eight and four": [
        "warp_count_32.cu  gfx942   UninitialisedShared",
        "warp_count_64.cu  sm_80    OutOfBounds",
        "warp_count.cu     gfx942   right: True",
    ],
    "two refusals": ["gfx1100  C++ for gfx1100: line 3", "The mask must be a 64-bit integer"],
    "the list of names": ["3421 entries in 8 lists", "cuda_fp8.h           is not"],
    "run hipify": ["calls reported as unsupported: 0", "csrc/fp8.cuh           csrc/fp8.cuh             -"],
    "run the guard": [
        "guarded.cu      gfx942  [-1.0, -1.0, -1.0, -1.0]",
        "guarded_both.cu gfx942  [1.0, 4.0, 9.0, 16.0]",
    ],
    "a matrix product": [],
    "waves_per_eu": ["waves_per_eu=4: 128 VGPRs, 357 spilled; 8 of 32 waves (25%), limited by LDS"],
    "default precision of dot": [
        "gfx90a  default  relative error 2e-07",
        "v_mfma_f32_32x32x4_xf32",
        "gfx942  ieee     relative error 2e-07",
    ],
    "denormals in matrix instructions": ["gfx90a 0.00e+00   gfx942 3.05e-05", "gfx90a 0.00e+00   gfx942 2.47e-32"],
    "denormals in exp2": [
        "gfx942  allow_flush_denorm=False  exp(-90) = 8.2e-40   exp2(-130) = 0.0e+00   1e-39 / 2 = 5.0e-40",
        "gfx942  allow_flush_denorm=True   exp(-90) = 0.0e+00",
    ],
    "one byte, two numbers": ["253 of 256 codes: exactly half", "[1.0, 240.0, 240.0, nan, nan, nan, nan]"],
    "PTX for an AMD chip": ["stdout: 80 compiled\n", "constraint 'f'", "status: 1"],
    "a fenced kernel": [
        "sm_80   backend 'cuda'  prmt.b32   right: True",
        "gfx942  backend 'hip'   v_perm_b32 right: True",
    ],
    "a wait that is missing": ["|  s_nop 0  |", "inline assembly: v_exp_f32 v1, v1  |  v_add_f32"],
    "libdevice on both sides": ["197 functions for NVIDIA; 141 of them are missing for AMD", "no attribute 'fma_rn'"],
    "atomics on three dtypes": ["gfx942     float32: add            float16: add CAS loop  bfloat16: add CAS loop"],
    "a loop that waits": ["volatile load   gfx942   the loop loads nothing", "gfx942: waited, then wrote 7"],
    "a described node": [],
    "two layers": ["HIP_VISIBLE_DEVICES=4,5 gives []", "HIP_VISIBLE_DEVICES=0,1 gives [4, 5]"],
    "ask the doctor": ["processes 0 to 3: no GPU", "WRONG: HSA_OVERRIDE_GFX_VERSION=11.0.0 on gfx942"],
    "the order of clipping": ["clip -> unscale : norm 1.5e-05"],
    "the parity report": [],
    "a port that lost its mask": [],
}
"""Title of a cell -> parts of its output that the text around it relies on."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return printed(LESSON, STATED, tmp_path_factory.mktemp("lesson"))


@pytest.mark.parametrize("title", [title for title in STATED if STATED[title]])
def test_a_cell_prints_what_the_text_says(outputs, title):
    for part in STATED[title]:
        assert part in outputs[title], outputs[title]


def test_one_code_path_on_one_machine_gives_the_same_losses(outputs):
    assert "BROKEN" not in outputs["the parity report"]


def test_a_lost_mask_shows_in_the_first_step_and_not_in_validation(outputs):
    verdicts = {
        line[:24].strip(): line.split()[-1] for line in outputs["a port that lost its mask"].splitlines() if line
    }
    assert verdicts["loss of the first step"] == "BROKEN"
    assert verdicts["final validation loss"] == "holds"
