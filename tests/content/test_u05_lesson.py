"""The numbers that lesson 05 states are those that its cells show, with the compilers of today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.content.lesson_cells import all_printed

LESSON = Path(__file__).parents[2] / "content/05_triton_matmul/lesson.py"
STATED = {
    "balance": [r"H100 .* 295\.3$", r"MI300X .* 246\.7$"],
    "square": [r"H100 +886$", r"MI300X +740$"],
    "instructions": [r"times +about 64$", r"outer product, sm_80 .* 0$", r"tl\.dot, sm_80 .* 33,554,432$"],
    "small tiles": [r"16 × 16 × 32 +16,384 +32,768 +65,536$", r"32 × 32 × 32 +65,536 +65,536 +262,144$"],
    "matrix instructions": [r"sm_80 +mma\.sync.*m16n8k16", r"sm_90 +wgmma", r"sm_100 +tcgen05", r"gfx1100 +v_wmma"],
    "count": [r"m16n8k16 on sm_80 +16$", r"32x32x8 on gfx942 +4$"],
    "way": [
        r"gfx942, .*along K +8 × ds_read_b64",
        r"along N .*ldmatrix\S*x4\.trans",
        r"gfx942, .*along N .*ds_read_u16",
        r"gfx950, .*along N .*ds_read_b64_tr_b16",
    ],
    "traffic": [r"128 × 128 +524,288 +524,288 +524,288$", r"256 × 64 +655,360 +655,360 "],
    "spills": [
        r"sm_90 spills +yes$",
        r"gfx942 spills +no$",
        r"8 waves, sm_100 +255 +[1-9]",
        r"8 waves, gfx950 +256 +\d ",
    ],
    "edges": [r"row 0 of A +numbers of row 1$", r"the last row +an error$", r"c\[0, 0\] +1,220$"],
    "accumulator": [r"5 times and more$"],
    "default precision": [r"sm_80 .*tf32", r"gfx942 .*xf32", r"gfx950 .*mfma_f32_32x32x2_f32", r"gfx1100 .*fma"],
    "stages": [r"gfx942 +too large$", r"^ +4 +96 +128 +96 +96$"],
    "nonkdim": [r"times as many +2$", r"nonkdim 32, kpack 2 .*ds_read_b128"],
    "waves per eu": [r"what +spills$"],
    "strips": [r"64 tiles in a row +67$", r"and a half +25$"],
    "odd rows": [r"rows of 256, sm_80 .* 49,792$", r"rows of 257, sm_80 .* 85,568$", r"rows of 257, gfx942 .* 44,224$"],
    "the products of GPT-2": [r"out, N = 768 +384 "],
    "dies": [r"shape +one row$", r"first 38 tiles +39$"],
    "split": [r"4 splits +16$", r"5 splits +26$"],
    "stream": [r"blocks of K +68$", r"are shared +0 +128$"],
    "space": [r"sm_90 +yes$", r"gfx942 +no$", r"gfx950 +yes$"],
}
"""Title of a cell -> patterns of what it shows that the text around it relies on."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return all_printed(LESSON, tmp_path_factory.mktemp("lesson"))


@pytest.mark.parametrize("title", STATED)
def test_a_cell_shows_what_the_text_says(shown, title):
    for pattern in STATED[title]:
        assert re.search(pattern, shown[title], re.MULTILINE), f"{pattern!r} is not in\n{shown[title]}"
