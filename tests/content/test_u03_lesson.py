"""What the prose of lesson 03 states is what its cells show, with the compilers of today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpu_utils.analytic.visibility import visible
from tests.content.lesson_cells import printed

LESSON = Path(__file__).parents[2] / "content/03_porting_to_rocm/lesson.py"

STATED = {
    "imports": [],
    "read the kernel": [],
    "guess the sum": [],
    "the sum on three targets": ["gfx942      64  128", "gfx1100     32  256"],
    "which elements reach the sum": ["gfx942: 128 of 256 elements (0-31, 64-95, 128-159, 192-223)"],
    "step through the loss": [],
    "v1 after each addition": [
        "+ 2      16       16       16       16",
        "+ 1      32       16       16       16",
    ],
    "guess the repairs": [],
    "both repairs": ["right  both"],
    "guess the votes": [],
    "the votes": ["outliers_32.cu, gfx942   [0, -9]  [-1, -9]", "outliers.cu, gfx942      [3, -9]  [36, -9]"],
    "guess the prefix": [],
    "the prefix sums": [
        "prefix_31.cu, gfx942        31       32        1",
        "prefix.cu, gfx942           31       32       33",
    ],
    "guess the count": [],
    "eight and four": ["partial[8] on gfx942  reads what nobody wrote", "partial[4] on sm_80   writes past the array"],
    "guess the masks": [],
    "three masks": [
        "broadcast_all     right  stops the kernel  stops the kernel",
        "mask names lanes 0-63, but lanes 0-39 call",
        "The mask must be a 64-bit integer",
    ],
    "guess the absent": [],
    "an absent lane": ["gfx942         36          0         40     16       16                          16"],
    "guess the lock": [],
    "who gets the lock": ["lock_each.cu      64  StepLimit  StepLimit", "lock_turns.cu     64  64         64"],
    "guess the bounds": [],
    "registers under bounds": ["(256, 8), sm_80          32", "(256, 8), gfx942         64"],
    "the files": ["csrc/fp8.cuh      cuda_fp8.h"],
    "the list of names": ["entries             3,421", "different names     3,415", "cuda_fp8.h          not in it"],
    "guess hipify": [],
    "run hipify": [
        "comm.h changes      yes",
        "config.h changes    no",
        "hopper.cuh changes  yes",
        "Reported as unsupported: 0 calls.",
    ],
    "what was translated": [],
    "guess the launch": [],
    "what was broken": ["nvtx3/roctracer/roctx.h"],
    "left in the launcher": ["cudaLaunchAttribute overlap[1];", "cudaLaunchKernelEx(&config", "scales, tokens, eps));"],
    "the kernel that counts": [],
    "what is left": ["no-counterpart"],
    "guess the unseen": [],
    "what the reader missed": ["wrong lines      3", "named            0"],
    "guess the guard": [],
    "run the guard": ["guarded.cu           4      -1", "guarded_both.cu      4       4"],
    "a matrix product": [],
    "guess the stages": [],
    "shared memory by stages": ["sm_90            128 KiB", "gfx942           96 KiB"],
    "guess the waves": [],
    "waves_per_eu": ["hundreds of bytes", "600                              98", "8 of 32 waves (25%), limited by LDS"],
    "a product of two tiles": [],
    "guess the precision": [],
    "default precision of dot": [
        "sm_90   about 1e-3",
        "gfx942  about 1e-3",
        "gfx950  about 1e-7",
        "gfx942, ieee",
        "xf32",
    ],
    "guess the bytes": [],
    "one byte, two numbers": ["253 of 256 codes are exactly half"],
    "guess the loss": [],
    "the ends of the two formats": [
        "become NaN  44.64 %",
        "FN       240  240  256  448  448        448",
        "FNUZ     240  240  nan  nan  nan        240",
    ],
    "guess the flavours": [],
    "fp8 on every target": [
        "gfx942   v_mfma_f32_32x32x8_f16 ",
        "gfx90a   v_mfma_f32_32x32x8f16 ",
        "FN on sm_80     refused",
        "FN on gfx90a    converted",
        "FNUZ on gfx950  converted",
    ],
    "the script": [],
    "guess the end": [],
    "PTX for an AMD chip": ["it prints  nothing", "80 compiled", "constraint 'f'", "status  1"],
    "a fenced kernel": [],
    "both instructions": ["sm_80   cuda     yes", "gfx942  hip      yes"],
    "a loop that waits": [],
    "what the loop reads": [
        "gfx942, volatile load     nothing",
        "gfx1100, volatile load    nothing",
        "gfx942, atomic_add of 0   global_atomic_or",
    ],
    "guess the devices": [],
    "two layers": ["HIP_VISIBLE_DEVICES=4,5      0", "HIP_VISIBLE_DEVICES=0,1      2"],
    "a described node": [],
    "guess the faults": [],
    "ask the doctor": [
        "GPUs that process 0 sees as it is             0",
        "GPUs it sees without HIP_VISIBLE_DEVICES      4",
        "settings that are wrong or harmful here       3",
        "WRONG: processes 0 to 3: ROCR_VISIBLE_DEVICES=4,5,6,7",
    ],
    "guess the norm": [],
    "the order of clipping": ["clip then unscale  1.526e-05"],
    "the parity report": [],
    "attention written out": [],
    "guess the mask": [],
    "a port that lost its mask": [],
}
"""Title of a cell -> parts of what it shows that the text around it relies on."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return printed(LESSON, STATED, tmp_path_factory.mktemp("lesson"))


@pytest.mark.parametrize("title", [title for title in STATED if STATED[title]])
def test_a_cell_shows_what_the_text_says(outputs, title):
    for part in STATED[title]:
        assert part in outputs[title], outputs[title]


def test_the_figure_of_the_two_layers_says_what_the_rules_say():
    figure = re.search(r"(?s)# physical GPU .*?```", LESSON.read_text("utf-8"))[0]
    ends = [int(number) for number in re.findall(r"cuda:\d is GPU (\d)", figure)]
    set_here = dict(re.findall(r"(\w+_VISIBLE_DEVICES)=([\d,]+)", figure))
    assert tuple(ends) == visible(set_here, gpus=4, vendor="amd").gpus == (3, 1)


def test_one_code_path_on_one_machine_gives_the_same_losses(outputs):
    verdicts = [line.split()[-1] for line in outputs["the parity report"].splitlines()[1:]]
    assert verdicts.count("yes") == 6
    assert "no" not in verdicts


def test_another_order_of_sums_makes_other_losses_and_every_row_holds(outputs):
    rows = outputs["attention written out"].splitlines()[1:]
    assert [row.split()[-1] for row in rows].count("yes") == 6
    gap = next(row for row in rows if row.startswith("largest gap of one step"))
    assert 0 < float(gap.split()[-1]) < 1e-4


def test_a_lost_mask_is_found_by_a_property_and_the_first_step_and_by_no_curve(outputs):
    shown = outputs["a port that lost its mask"]
    assert "gradients against float64           no" in shown
    assert "loss of the first step              yes" in shown
    assert "validation loss                     no" in shown
    assert "what a logit sees of a later token  yes" in shown
