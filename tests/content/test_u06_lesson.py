"""The numbers that lesson 06 states are those that its cells show, with the compilers of today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.content.lesson_cells import all_printed

LESSON = Path(__file__).parents[2] / "content/06_flash_attention/lesson.py"
STATED = {
    "bytes": [r"times N × D +100$"],
    "merge": [r"numerator +10\.21$", r"result +5\.881$"],
    "loads": [r"^times +8$", r"sm_80 .* 67,108,864$", r"gfx942 .* 100,663,296$"],
    "l2": [r"with one L2 +1$", r"with eight L2s +8$"],
    "rows": [
        r"4 waves, gfx942 +1\.5 .* 19$",
        r"8 waves, gfx942 +3 ",
        r"2 waves, gfx942 +1 .* 9$",
        r"BM = 128, 4 waves, gfx942 +1 ",
        r"MFMA of 16 rows, 4 waves, gfx942 +1 ",
        r"8 warps, sm_80 +2 ",
    ],
    "way of p": [
        r"sm_80 +0 +0 +0 +8 +8 +0$",
        r"gfx942 +64 +64 ",
        r"gfx942, BM = 128 +0 +0 +0 +0 +0 +4$",
        r"gfx950, BM = 128 +0 +0 +12 ",
    ],
    "share": [r"D = 64 +0\.99"],
    "exponentials": [r"on sm_80 +8$", r"exp +26 +30$", r"exp2 +18 +5$"],
    "tiles": [r"computed +20$", r"on the diagonal +8$"],
    "causal in counters": [r"everywhere, sm_80 .* 67,108,864 ", r"two loops, gfx942 .* 41,943,040 "],
    "window": [r"first row with NaN +163$", r"^rows with NaN +349$"],
    "registers": [
        r"numbers, 128 lanes +192$",
        r"4 waves, sm_90 +255 +0 +131,072 ",
        r"4 waves, gfx942 +270 +0 ",
        r"4 waves, gfx950 +250 +0 ",
        r"8 waves, gfx1100 +256 +[1-9]",
    ],
    "delta": [r"times smaller +4,096$", r"d[qkv] +\d\.\d+e-1[56]$"],
    "dv in counters": [r"gfx942 .* 1\.5$", r"gfx942, MFMA of 16 rows .* 1$"],
    "padding": [r"forward: o +yes$", r"dq +no$", r"dk +no$", r"dv +no$"],
    "lse in 16 bits": [r"P times +1\.02$"],
    "splits": [r"H100 +4$", r"MI300X +8$"],
    "merge of parts": [r"as they come +tensor\(\[nan, nan"],
    "packing": [
        r"each head, sm_80 +1 .* 4\.01 .* 33,554,432 ",
        r"each group, gfx942 .* 20,971,520 ",
        r"1 wave, gfx942 .* 8,388,608 ",
    ],
    "mla": [
        r"times smaller +71\.11$",
        r"differs by \de-1[3-6]|differs by \d\.\de-1[3-6]",
        r"16 of the 128 heads +30\.22$",
    ],
    "strides of the absorbed query": [r"strides +\(32, 64, 1\)$"],
    "pages": [r"when shuffled +no$"],
}
"""Title of a cell -> patterns of what it shows that the text around it relies on."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return all_printed(LESSON, tmp_path_factory.mktemp("lesson"))


@pytest.mark.parametrize("title", STATED)
def test_a_cell_shows_what_the_text_says(shown, title):
    for pattern in STATED[title]:
        assert re.search(pattern, shown[title], re.MULTILINE), f"{pattern!r} is not in\n{shown[title]}"
