"""The numbers that lesson 04 states are those that its cells show, with the compilers of today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.content.lesson_cells import all_printed

LESSON = Path(__file__).parents[2] / "content/04_triton_reductions/lesson.py"
STATED = {
    "balance": [r"H100 .* 19\.97 +9\.985$", r"MI300X .* 30\.83 +7\.708$"],
    "copy kernel": [r"sm_80 +128 +2$", r"gfx942 +128 +1$"],
    "divisible": [r"16,392 +32 +32$", r"16,400 +128 +128$"],
    "counts of the copy": [r"16,384 on sm_80 .* 2,048 ", r"16,385 on sm_80 .* 8,193 ", r"16,385 on gfx942 .* 2,049 "],
    "traffic of gelu": [r"reads and writes +18$", r"times as fast +9$"],
    "stride 0": [r"of dy_ptr, which has 4 bytes", r"dy of a sum +reads outside", r"x is a slice +wrong numbers"],
    "tanh": [r"at 50 +nan$", r"at u = -50 +-1$"],
    "offsets": [r"equal decisions of 256 +256$"],
    "cost of philox": [r"rand_kernel +7\d\S* +7\d"],
    "philox": [r"share +nearly half", r"rand4x_kernel: sm_80 3\d"],
    "traffic of softmax": [r"by hand +8$"],
    "fill": [r"^0 +0\.44\d+ +1\.553", r"^-inf +-0\.59\d+ +0\.553"],
    "barriers": [r"1 wave, sm_80 ", r"8 waves, gfx942 .* 320$", r"with 8 +320$"],
    "exchanges": [r"sm_90 +10 × shfl", r"sm_100 .*redux\.sync\.max", r"gfx1100 .*v_permlanex16"],
    "spills": [r"sm_90 spills +yes", r"gfx942 spills +no", r"gfx1100, waves of 32, spills +yes"],
    "merge": [r"l of both +1\.736$"],
    "minus infinity": [r"first +nan$", r"such a block +1\.368 +nan$", r"in the merge +1\.368 +1\.368$"],
    "variance": [r"off by more than that$", r"negative +yes$|can it come out negative\? +yes$"],
    "rmsnorm": [r"reads and writes +8$", r"times as fast +2$"],
    "programs": [r"SMs with work +6$", r"parts of the rows +51$"],
    "race": [r"Race: .*an update may be lost"],
    "order": [r"more than 5$"],
    "backward": [r"two decimals +0$"],
    "loss": [r"times +2$"],
    "ignored": [r"row 0 +reads outside", r"row 2 +a number of another row"],
    "vocabulary": [r"50,257 +16 +16$", r"50,304 +128 +64$"],
    "offsets of 32 bits": [r"row +42,691$", r"negative$"],
    "tiles": [r"32 × 32 +1 +1 +1 ", r"8 × 128 +1 +1 +2\.5 ", r"1 × 128 +4\.5 +4\.5 +16\.5 "],
    "conflicts": [r"32 × 32 +0 +0 +1,024 "],
    "tuner": [r"they cannot tell$"],
    "stages": [
        r"4 in the launch changes them +no$",
        r"4 in tl.range, sm_80 .*cp\.async.* 3,072 ",
        r"4 in tl.range, gfx942 .*4 × buffer_load_dword +0 ",
    ],
}
"""Title of a cell -> patterns of what it shows that the text around it relies on."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return all_printed(LESSON, tmp_path_factory.mktemp("lesson"))


@pytest.mark.parametrize("title", STATED)
def test_a_cell_shows_what_the_text_says(shown, title):
    for pattern in STATED[title]:
        assert re.search(pattern, shown[title], re.MULTILINE), f"{pattern!r} is not in\n{shown[title]}"
